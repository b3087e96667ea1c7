// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "farandole/farandole.hpp"
#include "farandole/result.hpp"

namespace farandole::bindings {

/// An exception of the class of farandole.errors for this kind. The GIL is held.
nanobind::object exception_of(const Error& error);

/// Raises the class of farandole.errors for this kind. The GIL is held.
[[noreturn]] void raise(const Error& error);

/// The value of a Result, or its error as an exception.
template <class T>
T take(Result<T> result) {
  if (!result) raise(result.error());
  if constexpr (!std::is_void_v<T>) return *std::move(result);
}

/// Calls `make` without the GIL, since it waits for other ranks, and returns what it makes.
template <class Make>
auto together(Make&& make) {
  auto made = [&] {
    const nanobind::gil_scoped_release release;
    return make();
  }();
  return take(std::move(made));
}

/// Context::from_job() without the GIL, which is held only while a Python store is called.
std::unique_ptr<Context> from_job(const Job& job);

/// Library memory as Python sees it: a writable buffer of bytes.
struct OwnedBuffer {
  std::shared_ptr<std::byte> data;
  std::size_t size = 0;
};

/// Converts seconds. More than a year counts as for ever, which stays within what the clock can
/// add.
inline std::chrono::milliseconds milliseconds(double seconds) {
  constexpr double kSecondsMax = 366.0 * 24 * 3600;
  return std::chrono::milliseconds(
      static_cast<std::int64_t>(std::ceil(std::min(seconds, kSecondsMax) * 1000)));
}

// How often a wait checks Python's pending signals.
inline constexpr auto kSignalInterval = std::chrono::milliseconds(100);

void bind_types(nanobind::module_& module);     // the enums; before everything that takes them
void bind_reduce(nanobind::module_& module);    // src/reduce
void bind_schedule(nanobind::module_& module);  // src/schedule, src/algorithms
void bind_model(nanobind::module_& module);     // src/model
void bind_planner(nanobind::module_& module);   // src/planner
void bind_job(nanobind::module_& module);       // stores and jobs; before the context
void bind_completions(nanobind::module_& module, nanobind::class_<Request>& request);
void bind_communicator(nanobind::module_& module);  // requests, calls; before the context
void bind_context(nanobind::module_& module);       // src/frontend
void bind_coordinator(nanobind::module_& module);
void bind_simulator(nanobind::module_& module);  // src/simulator

}  // namespace farandole::bindings
