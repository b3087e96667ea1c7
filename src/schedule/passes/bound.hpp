// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>

#include "farandole/types.hpp"
#include "schedule/schedule.hpp"

namespace farandole {

/// Where a span lies: bytes of one of the operation's buffers.
struct ByteSpan {
  Buffer buffer = Buffer::kIn;
  std::size_t offset = 0;  // bytes
  Bytes bytes;
};

/// What all actions of a bound program have in common and decides what may overlap.
struct BoundTerms {
  Collective collective = Collective::kAllreduce;
  /// From the beginning of `out` to that of `in`, in bytes, if they share memory.
  std::optional<std::int64_t> in_offset;
  Bytes out_bytes;  // of the whole `out`
};

/// An action of one rank in one iteration, with its places and with the actions that it waits for.
/// Other actions are named by their index in the bound program.
struct BoundAction {
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

  const Action* action = nullptr;
  std::uint32_t step = 0;  // counts the rounds of the schedule, before any were joined
  ByteSpan source, target, operand;
  std::int32_t peer = -1;  // rank in the group; of a transfer
  Bytes bytes;             // of a transfer
  Bytes follow_bytes;      // see Capabilities; of the transfer's transport
  bool streams = false;    // may follow another transfer piece by piece, or be followed so
  // Set by the passes.
  bool held = false;             // until the action before it is done
  std::uint32_t behind = kNone;  // the receive that it may not run ahead of
  std::uint32_t rides = kNone;   // a local copy: the send of its source during which it is made
  std::uint32_t along = kNone;   // a send: the copy that rides it
  std::uint32_t next = kNone;    // the next one of its round, in posting order

  bool sends() const { return action->kind == Action::Kind::kSend; }
  bool receives() const { return action->kind == Action::Kind::kReceive; }
  bool is_local() const { return action->kind == Action::Kind::kLocal; }
  bool reduces() const { return action->operand.has_value(); }
};

/// Actions that are open at one time: [first, first + count), posted from `posted_first` on.
struct BoundRound {
  std::uint32_t first = 0, count = 0;
  std::uint32_t posted_first = BoundAction::kNone;
  std::size_t position = 0;  // in the program, after this round
};

}  // namespace farandole
