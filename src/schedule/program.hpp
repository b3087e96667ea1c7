// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schedule/schedule.hpp"

namespace farandole {

/// One rank's part of a verified schedule, ready to step.
///
/// Order     Instructions run from the first to the last. A kLoopBegin sets the counter of its
///           depth to 0, a kLoopEnd adds one and jumps back until `iterations` are done.
/// Actions   Expressions are specialized to the rank, and guards that involve no loop are resolved,
///           so that `when` holds only guards that change from iteration to iteration. An action
///           whose guard fails counts as finished as soon as the one before it in its chain of
///           `after_previous` has finished; at the head of a chain, at once.
/// Positions Peers in actions are positions, as in the schedule; rank_at() gives the rank there.
/// Memory    Stepping evaluates expressions in place and allocates nothing.
/// Threads   immutable; share freely.
struct Program {
  struct Instruction {
    enum class Kind : std::uint8_t { kRound, kLoopBegin, kLoopEnd };
    Kind kind = Kind::kRound;
    std::uint32_t first = 0, count = 0;  // kRound: actions [first, first + count)
    std::int64_t iterations = 1;         // kLoopBegin, kLoopEnd: at least 1
    std::uint32_t jump = 0;  // kLoopBegin: index after its kLoopEnd. kLoopEnd: start of the body.
    int depth = 0;           // kLoopBegin, kLoopEnd: which counter. kRound: loops around it.
    bool operator==(const Instruction&) const = default;
  };

  Collective collective = Collective::kAllreduce;
  std::string algorithm;
  std::int64_t rank = 0, rank_count = 1;
  std::int64_t position = 0;        // of `rank`
  std::int64_t root = 0;            // a position
  std::vector<std::int32_t> order;  // [rank_count] or empty: the rank at each position
  std::int64_t chunk_count = 1, scratch_slots = 0;
  int lane_count = 1;
  std::vector<Instruction> instructions;
  std::vector<Action> actions;
  /// [actions]: whether the result is reduced from all ranks' inputs. Empty if that changes from
  /// one iteration to another somewhere in the schedule, or if nothing is reduced.
  std::vector<bool> completes;
  std::vector<std::int64_t> peers;  // ranks, sorted, without this one
  std::uint32_t actions_per_round_max = 0;

  std::int64_t rank_at(std::int64_t at) const {
    return order.empty() ? at : order[static_cast<std::size_t>(at)];
  }
};

/// The part of `rank`, 0 <= rank < rank_count. Rounds in which the rank has nothing to do are
/// left out, since a round orders only the actions of its own rank; so are empty loops.
Program specialize(const VerifiedSchedule& schedule, std::int64_t rank);

}  // namespace farandole
