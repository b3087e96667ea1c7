// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "farandole/job.hpp"
#include "farandole/result.hpp"

namespace farandole {

/// Text on its way into a Secret or out of one: zeroed at the end of its scope. A string that grows
/// leaves a copy behind, so first reserve the space that it will need.
struct Transient {
  explicit Transient(std::string value) : text(std::move(value)) {}
  Transient(const Transient&) = delete;
  Transient& operator=(const Transient&) = delete;
  ~Transient();

  std::string text;
};

/// `count` random bytes from the system, for nonces and secrets.
Result<std::string> random_bytes(std::size_t count);

/// Two digits per byte, with room reserved for the end of a line.
std::string hexadecimal(std::string_view bytes);

/// What proves membership in a job: FARANDOLE_SECRET, or the contents of FARANDOLE_SECRET_FILE, or
/// those of the user's own secret file, $XDG_CONFIG_HOME/farandole/secret (else ~/.config/...),
/// which is created on first use. If processes race to create it, one wins and all read its file.
///
/// Errors    kInvalidArgument when a file is readable or writable by others, is not the user's
///           own, is empty, or cannot be read or made.
Result<Secret> job_secret();

}  // namespace farandole
