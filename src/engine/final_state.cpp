// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/final_state.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "bootstrap/wire.hpp"

namespace farandole {
namespace {

// Encoded size of one element of each list.
constexpr std::size_t kCollectiveBytes = 8, kMessagesBytes = 16;

}  // namespace

void FinalState::withdraw_collective(std::uint32_t communicator, std::uint32_t sequence) {
  const auto [first, fresh] = next_sequence.emplace(communicator, sequence);
  first->second = std::min(first->second, sequence);
}

void FinalState::withdraw_message(Peer peer, bool sent, std::uint32_t number) {
  constexpr auto kAll = std::numeric_limits<std::uint32_t>::max();
  const auto [first, fresh] = messages.emplace(peer, Messages{kAll, kAll});
  std::uint32_t& count = sent ? first->second.sent : first->second.received;
  count = std::min(count, number);
}

void FinalState::limit(const FinalState& withdrawn) {
  for (auto& [communicator, next] : next_sequence) {
    const auto found = withdrawn.next_sequence.find(communicator);
    if (found != withdrawn.next_sequence.end()) next = std::min(next, found->second);
  }
  for (auto& [peer, count] : messages) {
    const auto found = withdrawn.messages.find(peer);
    if (found == withdrawn.messages.end()) continue;
    count.sent = std::min(count.sent, found->second.sent);
    count.received = std::min(count.received, found->second.received);
  }
}

std::string encode(const FinalState& final_state) {
  Writer writer;
  writer.u32(static_cast<std::uint32_t>(final_state.next_sequence.size()));
  for (const auto& [communicator, next] : final_state.next_sequence) {
    writer.u32(communicator).u32(next);
  }
  writer.u32(static_cast<std::uint32_t>(final_state.messages.size()));
  for (const auto& [peer, count] : final_state.messages) {
    writer.u32(peer.first).i32(peer.second).u32(count.sent).u32(count.received);
  }
  return std::move(writer).bytes();
}

std::optional<FinalState> decode_final_state(std::string_view bytes) {
  Reader reader(bytes);
  FinalState final_state;
  for (std::size_t left = reader.count(kCollectiveBytes); left > 0 && reader.ok(); --left) {
    const std::uint32_t communicator = reader.u32(), next = reader.u32();
    reader.require(final_state.next_sequence.emplace(communicator, next).second);
  }
  for (std::size_t left = reader.count(kMessagesBytes); left > 0 && reader.ok(); --left) {
    const std::uint32_t communicator = reader.u32();
    const FinalState::Peer peer{communicator, reader.rank()};
    const std::uint32_t sent = reader.u32(), received = reader.u32();
    reader.require(final_state.messages.emplace(peer, FinalState::Messages{sent, received}).second);
  }
  if (!reader.complete()) return std::nullopt;
  return final_state;
}

}  // namespace farandole
