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

/// What a rank that leaves on purpose has done its part in, so that the ranks that stay know what
/// still arrives from it: on each communicator everything before the first operation that did not
/// end well. An operation that ended with a disagreement counts as done, since all ranks heard of
/// the disagreement. Communicators are named by their numbers.
struct FinalState {
  struct Messages {
    std::uint32_t sent = 0, received = 0;
  };
  using Peer = std::pair<std::uint32_t, std::int32_t>;   // communicator, and a rank in it
  std::map<std::uint32_t, std::uint32_t> next_sequence;  // of collectives
  std::map<Peer, Messages> messages;                     // point to point

  /// Records that this operation and those after it were not done. A state filled by these two
  /// calls alone holds upper bounds for limit(): what they do not name is not limited.
  void withdraw_collective(std::uint32_t communicator, std::uint32_t sequence);
  void withdraw_message(Peer peer, bool sent, std::uint32_t number);
  /// Whether the rank that says so has done its part in the collective.
  bool has_done(std::uint32_t communicator, std::uint32_t sequence) const {
    const auto its = next_sequence.find(communicator);
    return its != next_sequence.end() && sequence < its->second;
  }
  /// Lowers the counts to those of `withdrawn`, where it has lower ones.
  void limit(const FinalState& withdrawn);
};

std::string encode(const FinalState& final_state);
/// None unless encode() may have written these bytes.
std::optional<FinalState> decode_final_state(std::string_view bytes);

}  // namespace farandole
