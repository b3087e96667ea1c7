// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "farandole/result.hpp"

namespace farandole {

/// `count` random bytes from the system, for nonces and secrets.
Result<std::string> random_bytes(std::size_t count);

/// What proves membership in a job: FARANDOLE_SECRET, or the contents of FARANDOLE_SECRET_FILE, or
/// those of the user's own secret file, $XDG_CONFIG_HOME/farandole/secret (else ~/.config/...),
/// which is created on first use; of processes that race to create it, one wins and all read its.
/// Errors    kInvalidArgument when a file is readable or writable by others, is not the user's
///           own, is empty, or cannot be read or made.
Result<std::string> job_secret();

}  // namespace farandole
