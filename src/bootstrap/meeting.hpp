// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/clock.hpp"
#include "bootstrap/socket.hpp"
#include "farandole/job.hpp"
#include "farandole/result.hpp"

namespace farandole {

// How the ranks of a job with a store find rank 0. Its keys in the store, each after Job::prefix:
//
//   /starts    how often a rank 0 has begun here; a second time is refused
//   /secret    the job's secret, where the store has it (secret_in_store())
//   /rank 0    name of the job, rank 0's host, where it listens; or why there is no job
//
// A process that changes them can keep the ranks from meeting. Without the secret it cannot join
// them, or make them join it: an address found there only says which listener to ask for a proof of
// the secret.

/// Rank 0: claims the prefix, and makes the secret if the store is to have it. Opens no port yet.
///
/// Errors    kInvalidArgument if the prefix was used before; those of the store.
Result<void> open_meeting(Job& job);

/// Rank 0: publishes where it listens; `port` and the address go into `job`, for messages.
Result<void> publish_meeting(Job& job, const Endpoint& listener);

/// Rank 0: publishes that there is no job. Errors of the store are ignored.
void cancel_meeting(const Job& job, const Error& why);

/// The other ranks: waits until rank 0 has published, and returns where it listens, the most likely
/// address first. The job's name and secret go into `job`.
///
/// Errors    kTimedOut naming rank 0 if it has published nothing; the error that rank 0 published;
///           those of the store.
Result<std::vector<Endpoint>> find_meeting(Job& job, Deadline deadline);

}  // namespace farandole
