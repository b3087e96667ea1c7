// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/batch.hpp"

#include <cstring>
#include <utility>

namespace farandole {

OperationId message_id(const Group& group, Rank from, Rank to, std::uint32_t number) {
  // The sum modulo the size is different for each peer of one rank; the order of the two ends tells
  // the directions apart.
  const auto size = static_cast<std::uint32_t>(group.size());
  const auto sum = static_cast<std::uint32_t>(from.value() + to.value());
  const std::uint32_t channel = 2 * (sum % size) + (from < to ? 1 : 0);
  const std::uint32_t window = ~std::uint32_t{0} / (2 * size);
  return {group.communicator | kPointToPoint, (number % window) * 2 * size + channel};
}

BatchOperation::BatchOperation(BatchSpec spec)
    : Operation(std::move(spec.terms)),
      spec_(std::move(spec)),
      entries_(spec_.messages.size()),
      open_count_(entries_.size()) {
  const Group& ranks = group();
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const MessageSpec& message = spec_.messages[i];
    Entry& entry = entries_[i];
    Transfer& transfer = message.sends ? static_cast<Transfer&>(entry.send) : entry.receive;
    transfer.peer = ranks.world_ranks[static_cast<std::size_t>(message.peer.value())];
    transfer.tag.operation = message.sends
                                 ? message_id(ranks, ranks.self, message.peer, message.number)
                                 : message_id(ranks, message.peer, ranks.self, message.number);
    transfer.signature = message.signature;
    transfer.bytes = message.bytes;
    entry.send.source = message.data;
    entry.receive.target = message.data;
  }
}

bool BatchOperation::begin() {
  for (const CopySpec& copy : spec_.copies) {
    if (copy.bytes.value() > 0) std::memmove(copy.target, copy.source, copy.bytes.value());
  }
  // Receives first: a message whose receive is already posted need not be set aside.
  for (const bool receives : {true, false}) {
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      if (spec_.messages[i].sends == receives) continue;
      if (receives) {
        transport(i).post(entries_[i].receive);
      } else {
        transport(i).post(entries_[i].send);
      }
    }
  }
  advance();
  return true;
}

bool BatchOperation::advance() {
  bool moved = false;
  for (std::size_t i = 0; i < entries_.size() && disagreement_ == nullptr; ++i) {
    if (!entries_[i].open) continue;
    const Transfer& at = transfer(i);
    if (at.state == TransferState::kDone) {
      close(i);
      moved = true;
    } else if (at.state == TransferState::kFailed && at.error == ErrorKind::kMismatch) {
      disagreeing_ = i;
      disagreement_ = &at;
      moved = true;
    }
  }
  if (open_count_ == 0) {
    finish();
    moved = true;
  }
  return moved;
}

void BatchOperation::close(std::size_t i) {
  entries_[i].open = false;
  --open_count_;
}

void BatchOperation::disagreed(Error error) {
  if (outcome_) outcome_ = std::move(error);
  disagreement_ = nullptr;
  close(disagreeing_);
}

void BatchOperation::withdraw(FinalState& words) const {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (!entries_[i].open) continue;
    const MessageSpec& message = spec_.messages[i];
    words.withdraw_message({group().communicator, message.peer.value()}, message.sends,
                           message.number);
  }
}

bool BatchOperation::cancel() {
  bool clear = true;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].open) clear &= transport(i).cancel(transfer(i).tag.operation);
  }
  return clear;
}

std::optional<Rank> BatchOperation::lost_peer() const {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].open && transfer(i).lost_peer()) return transfer(i).peer;
  }
  return std::nullopt;
}

bool BatchOperation::done_by(Rank world_rank, const FinalState& final_state) const {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (transfer(i).peer != world_rank) continue;
    const auto found = final_state.messages.find({group().communicator, group().self.value()});
    if (found == final_state.messages.end()) return false;
    const MessageSpec& message = spec_.messages[i];
    const std::uint32_t its = message.sends ? found->second.received : found->second.sent;
    if (message.number >= its) return false;
  }
  return true;
}

std::string BatchOperation::description() const {
  const std::size_t count = spec_.messages.size() + 2 * spec_.copies.size();
  std::string text = "batch of " + std::to_string(count) + " messages";
  if (count == 1) {
    const MessageSpec& only = spec_.messages[0];
    text = (only.sends ? "send to rank " : "recv from rank ") + std::to_string(only.peer.value());
  }
  if (!terms().name.empty()) text += " '" + terms().name + "'";
  return text + " (communicator " + std::to_string(group().communicator) + ")";
}

std::string BatchOperation::state() const {
  std::string text = description();
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].open) text += describe(transfer(i), spec_.messages[i].sends);
  }
  return text;
}

}  // namespace farandole
