// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <optional>
#include <string>

#include "farandole/result.hpp"

namespace farandole {

/// The environment variable `name`, unless it is unset or empty.
std::optional<std::string> variable(const char* name);
/// The first of `names` that is set.
std::optional<std::string> first_variable(std::initializer_list<const char*> names);

/// An integer in [low, high] from the variable `name`.
/// Errors    kInvalidArgument naming the variable, its value and what is allowed; one that is not
///           set is an error too, unless there is a `fallback`.
Result<int> integer_variable(const char* name, int low, int high,
                             std::optional<int> fallback = std::nullopt);

/// A name that exactly the processes of one launcher on this host share: the process id and start
/// time of the nearest ancestor without `variable` in its environment. That ancestor is the
/// launcher, even if wrapper scripts lie between.
std::string launcher_identity(const char* variable);

}  // namespace farandole
