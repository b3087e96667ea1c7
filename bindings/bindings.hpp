// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <cstddef>
#include <memory>
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

/// Raises unless 0 <= given < count.
void check_index(const char* argument, int given, int count);

/// Library memory as Python sees it: a writable buffer of bytes.
struct OwnedBuffer {
  std::shared_ptr<std::byte> data;
  std::size_t size = 0;
};

// Between two looks at Python's pending signals.
inline constexpr auto kSignalInterval = std::chrono::milliseconds(100);

void bind_reduce(nanobind::module_& module);    // src/reduce
void bind_schedule(nanobind::module_& module);  // src/schedule, src/algorithms
void bind_model(nanobind::module_& module);     // src/model
void bind_planner(nanobind::module_& module);   // src/planner
void bind_context(nanobind::module_& module);   // src/frontend
void bind_coordinator(nanobind::module_& module);
void bind_simulator(nanobind::module_& module);  // src/simulator

}  // namespace farandole::bindings
