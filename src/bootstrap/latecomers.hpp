// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <set>

#include "bootstrap/listener.hpp"
#include "farandole/job.hpp"
#include "farandole/result.hpp"

namespace farandole {

/// After a start that failed, rank 0's process goes on listening: ranks that come only now are told
/// why there is no job, instead of looking for rank 0 until their time is up.
///
/// It ends when all of `absent` have come, when the time to start is up, when this process starts
/// another job as rank 0 that may need the port, and 5 s after the process begins to exit, which
/// waits for it; 1 s if the failure is that the time was up, as it soon is for them.
/// Threads   any; it has a thread of its own.
void tell_latecomers(const Job& job, std::unique_ptr<Listener> listener, const Error& failure,
                     std::set<int> absent);

/// Ends it and frees the port, unless `job` takes any port.
void forget_latecomers(const Job& job);

}  // namespace farandole
