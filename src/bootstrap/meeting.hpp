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

// How the ranks of a job with a store find rank 0. Its keys, each behind Job::prefix:
//
//   /starts    how often a rank 0 has begun here; a second time is refused
//   /secret    the job's secret, where the store has it (secret_in_store())
//   /rank 0    name of the job, rank 0's host, where it listens; or why there is no job
//
// Whoever changes them can keep the ranks from meeting. He cannot join them, or make them join him:
// what is found there only says whom to ask for a proof that he knows the secret.

/// Rank 0: claims the prefix, and makes the secret if the store is to have it. No ports yet.
/// Errors    kInvalidArgument if the prefix was used before; those of the store.
Result<void> open_meeting(Job& job);

/// Rank 0: leaves word where it listens; `port` and the address go into `job`, for messages.
Result<void> publish_meeting(Job& job, const Endpoint& listener);

/// Rank 0: leaves word that there is no job. What the store answers is of no use any more.
void cancel_meeting(const Job& job, const Error& why);

/// The others: waits for rank 0's word; the job's name and secret go into `job`. Where rank 0
/// listens, the most likely first.
/// Errors    kTimedOut naming rank 0 if there is no word; what rank 0 says; those of the store.
Result<std::vector<Endpoint>> find_meeting(Job& job, Deadline deadline);

}  // namespace farandole
