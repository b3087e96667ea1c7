// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "algorithms/registry.hpp"
#include "delegates/delegate.hpp"
#include "farandole/result.hpp"
#include "farandole/types.hpp"
#include "schedule/schedule.hpp"

// Rows that are added to the algorithm table of this process.
//
// A schedule that a person wrote (docs/formats/schedule.md): the name in its line `algorithm` is a
// spec that build_schedule() takes, for the number of ranks and the root that the schedule is for.
//
// A delegate (delegates/delegate.hpp): its name is an algorithm of each of its collectives.
//
// Threads   all functions from any thread.
// Memory    what is registered stays until the process ends.
namespace farandole {

/// Reads a file and proves the schedule in it.
///
/// Errors    kInvalidArgument naming the file, and: why it cannot be read; the line at fault; or
///           the rank and the round at which the proof fails. Others as verify().
/// Blocking  as long as reading a regular file of at most 4 MiB and verify() take.
Result<VerifiedSchedule> load_schedule(const std::string& path);

/// Adds a schedule to the algorithms of this process. Adding an equal one again changes nothing.
///
/// Errors    kInvalidArgument: the name is that of an algorithm of the library, or of another
///           schedule for the same collective, number of ranks and root.
Result<const AlgorithmInfo*> register_schedule(const VerifiedSchedule& schedule);

/// Adds a delegate for each of its collectives. All ranks add the same ones, before they make
/// communicators.
///
/// Errors    kInvalidArgument: the name is taken for one of the collectives.
Result<void> register_delegate(std::shared_ptr<const Delegate> delegate);

/// All rows that were added, in that order.
std::vector<const AlgorithmInfo*> registered_algorithms();

/// The row that was added with this name; null if there is none.
const AlgorithmInfo* find_registered(Collective collective, std::string_view name);

/// The schedule in a row of schedules that is for this number of ranks and, if the collective has a
/// root, for this root.
///
/// Errors    kInvalidArgument naming the schedules that there are.
Result<Schedule> written_schedule(const AlgorithmInfo& row, std::int64_t rank_count,
                                  std::int64_t root);

/// The rank at the schedule's root position; 0 if the collective has no root.
std::int64_t root_rank(const Schedule& schedule);

}  // namespace farandole
