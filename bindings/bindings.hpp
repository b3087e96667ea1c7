// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <utility>

#include "farandole/result.hpp"

namespace farandole::bindings {

/// Raises the class of farandole.errors for this kind. The GIL is held.
[[noreturn]] void raise(const Error& error);

/// The value of a Result, or its error as an exception.
template <class T>
T take(Result<T> result) {
  if (!result) raise(result.error());
  if constexpr (!std::is_void_v<T>) return *std::move(result);
}

void bind_schedule(nanobind::module_& module);  // src/schedule, src/algorithms
void bind_planner(nanobind::module_& module);   // src/planner
void bind_context(nanobind::module_& module);   // src/frontend

}  // namespace farandole::bindings
