// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <set>

#include "bootstrap/listener.hpp"
#include "farandole/job.hpp"
#include "farandole/result.hpp"

namespace farandole {

/// After a start that failed, keeps rank 0's process listening: ranks that come only now are told
/// why there is no job, so that they do not look for rank 0 until they time out.
///
/// Listening ends when all of `absent` have come, when Job::start_timeout has passed since the
/// failure, or when this process starts another job as rank 0 that may need the port. At its exit
/// the process waits for this at most 5 s, or 1 s if the start has timed out, since the others soon
/// time out as well.
///
/// Threads   any; it has a thread of its own.
void tell_latecomers(const Job& job, std::unique_ptr<Listener> listener, const Error& failure,
                     std::set<int> absent);

/// Ends that and frees the port, unless `job` takes any port.
void forget_latecomers(const Job& job);

}  // namespace farandole
