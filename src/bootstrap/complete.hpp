// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "farandole/job.hpp"
#include "farandole/result.hpp"

namespace farandole {

/// Fills in what the job's maker left open: times and interface from the settings, names, and the
/// secret, unless the ranks get that from the store. A complete job does not change.
///
/// Errors    kInvalidArgument naming the field or the variable, what was given, what is allowed.
Result<Job> complete(Job job);

/// Fills in only the times, the interface and the names of this host.
///
/// Errors    as complete().
Result<void> apply_settings(Job& job);

/// Checks that the numbers and the way to find rank 0 make sense.
///
/// Errors    as complete().
Result<void> check(const Job& job);

/// Whether rank 0 makes the secret and the others read it in the store.
bool secret_in_store(const Job& job);

/// Whether all ranks are on this host, as far as the job says. Then, if the job has no address,
/// this process listens on loopback only.
bool on_one_host(const Job& job);

}  // namespace farandole
