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

/// The properties of a call and its communicator that decide; the same on all ranks if the calls
/// agree.
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

/// Algorithms that were asked for. Empty or "auto": none.
struct Preferences {
  std::string_view call;
  std::string_view schedule;  // name of FARANDOLE_SCHEDULE's schedule for such calls
  std::string_view setting;   // FARANDOLE_ALGORITHM, unless it does not suit these ranks
};

enum class Reason : std::uint8_t {
  kCall,      // the call names it
  kCounts,    // chosen among those that take chunks of different lengths
  kSchedule,  // FARANDOLE_SCHEDULE has one for it
  kSetting,   // FARANDOLE_ALGORITHM names it
  kTable,     // a tuning table or set_algorithm() names it
  kCost,      // the model predicts that it is the best
};

struct Choice {
  std::string spec;  // as build_schedule() reads it
  Reason reason = Reason::kCost;
};

/// Whether the call may run by `spec`: true for any schedule, and for a delegate that takes calls
/// of these types on this device. A delegate takes neither chunks of different lengths nor a fixed
/// order.
bool may_run_by(const CallShape& call, std::string_view spec);

/// The reasons above are tried in their order; the first that names an algorithm decides. This
/// tries those that need no table; none if the table decides. A setting counts only for collectives
/// that have an algorithm of that name, and if may_run_by() allows it. An algorithm that the call
/// itself names is not checked.
std::optional<Choice> choose_by_preference(const CallShape& call, const Preferences& preferences);
/// The table's choice, or if that may not run the call, its choice among schedules.
Choice choose_by_table(const CallShape& call, PlanTable& table);

/// Bytes of a rank's larger buffer, as PlanTable::find() counts them.
Bytes larger_side(const CallShape& call);

}  // namespace farandole
