// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "algorithms/registry.hpp"
#include "farandole/result.hpp"
#include "farandole/types.hpp"
#include "schedule/schedule.hpp"

// Schedules that a person wrote (docs/formats/schedule.md). Once registered, they are rows of the
// algorithm table of this process: the name in the schedule's line `algorithm` is a spec that
// build_schedule() takes, for the number of ranks and the root that the schedule is for.
//
// Threads   all functions: any.
// Memory    what is registered stays until the process ends.
namespace farandole {

/// Reads a file and proves what is in it.
/// Errors    kInvalidArgument naming the file, and: why it cannot be read; the line at fault; or
///           the rank and the round at which the proof fails. Others as verify().
/// Blocking  as long as reading a regular file of at most 4 MiB and verify() take.
Result<VerifiedSchedule> load_schedule(const std::string& path);

/// Adds a schedule to the algorithms of this process. Adding an equal one again changes nothing.
/// Errors    kInvalidArgument: the name is that of an algorithm of the library, or of another
///           schedule for the same collective, number of ranks and root.
Result<const AlgorithmInfo*> register_schedule(const VerifiedSchedule& schedule);

/// The row of the schedules with this name; null if there is none.
const AlgorithmInfo* find_written(Collective collective, std::string_view name);

/// The schedule of such a row for so many ranks, and this root if the collective has one.
/// Errors    kInvalidArgument naming what there is instead.
Result<Schedule> written_schedule(const AlgorithmInfo& row, std::int64_t rank_count,
                                  std::int64_t root);

/// The rank at the schedule's root position; 0 if the collective has no root.
std::int64_t root_rank(const Schedule& schedule);

}  // namespace farandole
