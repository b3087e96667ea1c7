// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "farandole/result.hpp"
#include "model/machine.hpp"
#include "schedule/schedule.hpp"
#include "simulator/columns.hpp"

namespace farandole {

/// Counters of the loops around a round, the outermost first; 0 where there is none.
using Counters = std::array<std::int64_t, Expr::kLoopDepthMax>;

/// What one rank does in one round, guards resolved.
struct TimedAction {
  double bytes = 0;          // of a message; 0: a signal
  double local_seconds = 0;  // kLocal: what it takes. kReceive: the reduction after the message
  std::int32_t peer = 0;     // a rank of the schedule, not a position
  std::int32_t lane = 0;
  Action::Kind kind = Action::Kind::kSend;
  bool after_previous = false;  // begins when the one before it is finished
  bool in_order = false;        // a receive after receives: only its writing waits for them
};

/// One round in one iteration, for all ranks: rank r does actions[first[r]] to actions[first[r+1]].
struct TimedRound {
  std::vector<std::uint32_t> first;  // [rank_count + 1]
  std::vector<TimedAction> actions;

  std::span<const TimedAction> of(std::int32_t rank) const {
    const auto r = static_cast<std::size_t>(rank);
    return std::span(actions).subspan(first[r], first[r + 1] - first[r]);
  }
};

/// A schedule with bytes on a machine: the same instructions for all ranks, each of which steps
/// through them at its own pace. Rounds are written out for all ranks at once, when asked for.
///
/// Bytes     all chunks are equally long, bytes / chunk_count, a real number: what a call would
///           round to whole elements and cache lines is not rounded.
/// Threads   one at a time.
class Workload {
 public:
  struct Instruction {
    enum class Kind : std::uint8_t { kRound, kLocal, kLoopBegin, kLoopEnd };
    Kind kind = Kind::kRound;
    std::int32_t stage = 0;
    std::int32_t depth = 0;       // kLoopBegin, kLoopEnd: which counter
    std::uint32_t jump = 0;       // kLoopBegin: its kLoopEnd. kLoopEnd: the start of the body
    std::int64_t iterations = 1;  // kLoopBegin, kLoopEnd
    double seconds = 0;           // kLocal: of local work on every rank
    std::uint32_t counters = 0;   // kRound: bit d: depends on the counter at depth d
    const Round* round = nullptr;
  };

  /// `schedule` must outlive this. `bytes`: of a rank's larger buffer.
  Workload(const Schedule& schedule, double bytes, const Machine& machine);

  const Schedule& schedule() const { return schedule_; }
  std::int64_t rank_count() const { return schedule_.rank_count; }
  std::span<const Instruction> instructions() const { return instructions_; }
  std::size_t stage_count() const { return std::max<std::size_t>(schedule_.stages.size(), 1); }
  /// The stage of this number, which says whether it is a ring; an unnamed one if the schedule has
  /// none.
  const Stage& stage(std::int32_t number) const;

  /// Errors    kInvalidArgument: a peer or a count out of range, in schedules that verify() has
  ///           not seen.
  Result<TimedRound> round(const Instruction& instruction, const Counters& counters);

 private:
  // One action, at the ranks that take part in it.
  struct Written {
    std::vector<std::int32_t> ranks;  // positions, ascending
    std::vector<TimedAction> actions;
  };
  void lower(const std::vector<Item>& items, std::int32_t depth);
  void add_local(double seconds, std::int32_t stage);
  std::optional<double> local_seconds(const Round& round) const;
  std::optional<double> local_seconds(const Item& item) const;
  double seconds_of(const Action& action, double bytes) const;
  bool keep_if(const std::vector<Guard>& when, const Counters& counters,
               std::vector<std::int32_t>& ranks);
  Result<void> write(const Action& action, const Counters& counters, Written& into);
  TimedRound gathered(const Round& round) const;

  const Schedule& schedule_;
  double chunk_bytes_;
  double copy_seconds_, reduce_seconds_;  // per byte
  std::vector<Instruction> instructions_;
  Columns columns_;
  std::vector<Written> written_;  // of one round, [action]; never shrinks, for reuse
};

}  // namespace farandole
