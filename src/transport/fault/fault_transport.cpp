// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/fault/fault_transport.hpp"

#include <algorithm>
#include <utility>

namespace farandole {
namespace {

std::string name_of(const Transport& inner, const FaultTransport::Options& options) {
  return "fault(" + std::string(inner.capabilities().name) + ", seed " +
         std::to_string(options.seed) + ")";
}

}  // namespace

FaultTransport::FaultTransport(std::unique_ptr<Transport> inner, Options options)
    : inner_(std::move(inner)),
      options_(std::move(options)),
      name_(name_of(*inner_, options_)),
      capabilities_(inner_->capabilities()),
      random_(options_.seed) {
  capabilities_.name = name_;
  passed_over_.reserve(1024);
}

/// Takes over what the other transport can do only once peers and memory are added.
void FaultTransport::renew_capabilities() {
  const Capabilities& inner = inner_->capabilities();
  // Other threads read them meanwhile, so what is set already is not written again.
  if (inner.peer_memory && !capabilities_.peer_memory) capabilities_.peer_memory = true;
  if (inner.all_memory && !capabilities_.all_memory) capabilities_.all_memory = true;
}

Result<void> FaultTransport::add_peer(const Member& peer, Deadline deadline) {
  auto added = inner_->add_peer(peer, deadline);
  renew_capabilities();
  return added;
}

Result<void> FaultTransport::connect(std::span<const Rank> peers, Deadline deadline) {
  auto connected = inner_->connect(peers, deadline);
  renew_capabilities();
  return connected;
}

Result<bool> FaultTransport::register_memory(std::span<std::byte> memory) {
  auto registered = inner_->register_memory(memory);
  renew_capabilities();
  return registered;
}

// Not a standard distribution: a seed must give the same numbers with every library.
std::uint32_t FaultTransport::draw(std::uint32_t most) {
  return static_cast<std::uint32_t>(random_() % (std::uint64_t{most} + 1));
}

bool FaultTransport::chance(std::uint32_t every) {
  return every != 0 && draw(every - 1) == 0;
}

// Whether the transfer must fail at once, and so is not held.
bool FaultTransport::ended(const Transfer& transfer) const {
  return std::ranges::find(cancelled_, transfer.tag.operation) != cancelled_.end() ||
         std::ranges::find(failed_, transfer.peer) != failed_.end();
}

void FaultTransport::post(Send& send) {
  if (ended(send)) return inner_->post(send);
  send.start();
  ++send_count_;
  if (dropped(send)) return send.finish();
  delay(send);
  sends_.push(send);
}

void FaultTransport::post(Receive& receive) {
  if (ended(receive)) return inner_->post(receive);
  receive.start();
  delay(receive);
  receives_.push(receive);
}

// `phase` is for the transport that owns the transfer: this one until release().
void FaultTransport::delay(Transfer& transfer) {
  transfer.phase = draw(options_.post_delay_max);
  if (chance(options_.stall_every)) stall_ = std::max(stall_, draw(options_.stall_max));
  wake_ |= chance(options_.wake_every);
}

bool FaultTransport::dropped(const Send& send) {
  const Stream stream{send.peer, send.tag};
  if (std::ranges::find(broken_, stream) != broken_.end()) return true;
  if (!chance(options_.drop_every)) return false;
  broken_.push_back(stream);
  return true;
}

// Kills the rank when it is time; true if nothing may move from then on.
bool FaultTransport::silent() {
  if (!options_.kill_after_sends || send_count_ < *options_.kill_after_sends) return false;
  if (!std::exchange(killed_, true) && options_.on_kill) options_.on_kill();
  return !options_.on_kill;
}

// Posts what has waited long enough; true if something is still held.
template <class T>
bool FaultTransport::release(Held<T>& held) {
  passed_over_.clear();
  Held<T> due;
  held.take_all([&](T& transfer) {
    const Stream stream{transfer.peer, transfer.tag};
    if (transfer.phase > 0) --transfer.phase;
    const bool blocked = options_.reorder
                             ? std::ranges::find(passed_over_, stream) != passed_over_.end()
                             : !passed_over_.empty();
    if (transfer.phase > 0 || blocked) {
      passed_over_.push_back(stream);
      return false;
    }
    due.push(transfer);
    return true;
  });
  while (T* transfer = due.pop()) inner_->post(*transfer);
  return !held.empty();
}

bool FaultTransport::progress() {
  if (silent()) return false;
  bool moved = std::exchange(wake_, false);
  moved |= release(sends_);
  moved |= release(receives_);
  if (stall_ > 0) {
    --stall_;
    return true;
  }
  return inner_->progress() || moved;
}

template <class Predicate>
void FaultTransport::end_held(Predicate unwanted, ErrorKind kind) {
  const auto end = [&](Transfer& transfer) {
    if (!unwanted(transfer)) return false;
    transfer.fail(kind);
    return true;
  };
  sends_.take_all(end);
  receives_.take_all(end);
}

bool FaultTransport::cancel(OperationId operation) {
  end_held([&](const Transfer& held) { return held.tag.operation == operation; },
           ErrorKind::kInternal);
  if (std::ranges::find(cancelled_, operation) == cancelled_.end()) {
    cancelled_.push_back(operation);
  }
  return inner_->cancel(operation);
}

void FaultTransport::peer_failed(Rank peer) {
  end_held([&](const Transfer& held) { return held.peer == peer; }, ErrorKind::kRankFailed);
  failed_.push_back(peer);
  inner_->peer_failed(peer);
}

}  // namespace farandole
