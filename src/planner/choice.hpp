// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
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
  int rank_count = 1;
  bool by_rank = false;      // chunks of different lengths
  bool peer_memory = false;  // ranks read each other's memory
  int size_shift = 0;        // the call is planned as if it were 2^size_shift times as large
};

/// What somebody asked for. Empty or "auto": nothing.
struct Wishes {
  std::string_view call;
  std::string_view setting;  // FARANDOLE_ALGORITHM, unless it does not suit these ranks
};

enum class Reason : std::uint8_t {
  kCall,     // the call names it
  kCounts,   // of those that take chunks of different lengths
  kSetting,  // FARANDOLE_ALGORITHM names it
  kTable,    // a tuning table or set_algorithm() names it
  kCost,     // the model predicts that it is the best
};

struct Choice {
  std::string spec;  // as build_schedule() reads it
  Reason reason = Reason::kCost;
};

/// The algorithm of a call: the first of the reasons above, in their order, that names one. A
/// setting counts for those collectives that have an algorithm of that name. `table` is asked for
/// only if it decides.
///
/// Threads   any, as far as `table` allows.
Choice choose_algorithm(const CallShape& call, const Wishes& wishes,
                        const std::function<PlanTable&()>& table);

/// Bytes of the larger side of a rank, as PlanTable::find() counts.
Bytes larger_side(const CallShape& call);

}  // namespace farandole
