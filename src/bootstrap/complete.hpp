// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "farandole/job.hpp"
#include "farandole/result.hpp"

namespace farandole {

/// The job with what its maker left open: times and interface by the settings, names, and the
/// secret, unless the ranks get that from the store. Of a complete job nothing changes.
/// Errors    kInvalidArgument naming the field or the variable, what was given, what is allowed.
Result<Job> complete(Job job);

/// Only the times, the interface and the names of this host. Errors    as complete().
Result<void> apply_settings(Job& job);

/// Whether its numbers and its way to find rank 0 make sense. Errors    as complete().
Result<void> check(const Job& job);

/// Whether rank 0 makes the secret and the others read it in the store.
bool secret_in_store(const Job& job);

/// Whether all ranks are on this host, as far as the job says; then nobody else is listened to.
bool on_one_host(const Job& job);

}  // namespace farandole
