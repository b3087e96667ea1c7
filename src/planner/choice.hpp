// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "farandole/types.hpp"
#include "planner/plan_table.hpp"

namespace farandole {

/// What of a call and its communicator decides; the same on all ranks, for calls that agree.
struct CallShape {
  Collective collective = Collective::kAllreduce;
  Count count;  // elements of one chunk
  DType dtype = DType::kFloat32;
  Reduction reduction = Reduction::kSum;  // of collectives that reduce
  int rank_count = 1;
  bool by_rank = false;             // chunks of different lengths
  bool deterministic = false;       // operands in a fixed order
  std::string_view device = "cpu";  // whose memory the buffers lie in
  bool peer_memory = false;         // ranks read each other's memory
  int size_shift = 0;               // the call is planned as if it were 2^size_shift times as large
  PlanTable::Kind kind = PlanTable::Kind::kAny;  // kSchedule: no delegate may run it
};

/// What somebody asked for. Empty or "auto": nothing.
struct Preferences {
  std::string_view call;
  std::string_view schedule;  // FARANDOLE_SCHEDULE, the name of the one for such calls
  std::string_view setting;   // FARANDOLE_ALGORITHM, unless it does not suit these ranks
};

enum class Reason : std::uint8_t {
  kCall,      // the call names it
  kCounts,    // of those that take chunks of different lengths
  kSchedule,  // FARANDOLE_SCHEDULE has one for it
  kSetting,   // FARANDOLE_ALGORITHM names it
  kTable,     // a tuning table or set_algorithm() names it
  kCost,      // the model predicts that it is the best
};

struct Choice {
  std::string spec;  // as build_schedule() reads it
  Reason reason = Reason::kCost;
};

/// Whether the call may run by `spec`: by any schedule, or by a delegate that takes calls of its
/// types on its device. A delegate takes no chunks of different lengths and no fixed order.
bool may_run_by(const CallShape& call, std::string_view spec);

/// The algorithm of a call is the first of the reasons above, in their order, that names one. This
/// looks at those that need no table; none if the table decides. A setting counts for those
/// collectives that have an algorithm of that name, and where may_run_by() allows it. What the call
/// itself names is not looked at.
std::optional<Choice> choose_by_preference(const CallShape& call, const Preferences& preferences);
/// What the table says, and where that may not run the call, what it says of schedules.
Choice choose_by_table(const CallShape& call, PlanTable& table);

/// Bytes of the larger side of a rank, as PlanTable::find() counts.
Bytes larger_side(const CallShape& call);

}  // namespace farandole
