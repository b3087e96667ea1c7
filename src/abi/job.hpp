// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "farandole/farandole.h"
#include "farandole/job.hpp"

namespace farandole::abi {

/// The caller's job, with a store that calls the caller's functions. Texts are copied.
///
/// Errors    kInvalidArgument naming the field, for what Context::from_job() cannot see: null
///           pointers, sizes, flags, reserved fields; kUnsupported as in convert.hpp.
Result<Job> read_job(const char* call, const farandole_job* job);

}  // namespace farandole::abi
