// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace farandole {

/// What a rank has done its part in when it leaves on purpose, so that those who stay know what of
/// it still comes: on each communicator everything before the first that did not end well. What
/// ended with a disagreement counts as done, since all ranks heard of that. Communicators are named
/// by their numbers.
struct FinalState {
  struct Messages {
    std::uint32_t sent = 0, received = 0;
  };
  using Peer = std::pair<std::uint32_t, std::int32_t>;   // communicator, and a rank in it
  std::map<std::uint32_t, std::uint32_t> next_sequence;  // of collectives
  std::map<Peer, Messages> messages;                     // point to point

  /// That one, and what follows it, was not done. What was not named before stays unnamed in these
  /// words, which limit() holds against others.
  void withdraw_collective(std::uint32_t communicator, std::uint32_t sequence);
  void withdraw_message(Peer peer, bool sent, std::uint32_t number);
  /// Whether the rank that says so has done its part in the collective.
  bool has_done(std::uint32_t communicator, std::uint32_t sequence) const {
    const auto its = next_sequence.find(communicator);
    return its != next_sequence.end() && sequence < its->second;
  }
  /// Promises no more than was not withdrawn there.
  void limit(const FinalState& withdrawn);
};

std::string encode(const FinalState& final_state);
/// None if encode() does not write such bytes.
std::optional<FinalState> decode_final_state(std::string_view bytes);

}  // namespace farandole
