// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/origin.hpp"
#include "farandole/job.hpp"
#include "farandole/result.hpp"
#include "farandole/types.hpp"
#include "schedule/schedule.hpp"

namespace farandole {

/// What a process knows before it joins a job: its place in the job, and the settings.
///
/// Threads   constant once the ranks have met, so any may read.
struct Environment {
  Origin origin;
  Job job;
  Bytes memory_reserve;            // FARANDOLE_MEMORY
  bool check = false;              // FARANDOLE_CHECK
  std::string transport = "auto";  // FARANDOLE_TRANSPORT, or the name of a row of the registry
  bool peer_memory = true;         // false: stage everything, for tests
  std::string algorithm;           // FARANDOLE_ALGORITHM, empty: chosen per call
  std::vector<VerifiedSchedule> schedules;  // FARANDOLE_SCHEDULE, registered
  std::chrono::milliseconds operation_timeout{0};
};

/// Settings that every context reads, and defaults of calls.
///
/// Errors    kInvalidArgument naming the variable.
Result<void> read_settings(Environment& environment);

}  // namespace farandole
