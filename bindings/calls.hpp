// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <vector>

#include "farandole/farandole.hpp"

namespace farandole::bindings {

/// Arguments with the memory of their lists of counts; Python's `Arguments`.
struct OwnedArguments {
  OwnedArguments(const Arguments& plain, std::vector<std::size_t> in, std::vector<std::size_t> out)
      : in_counts(std::move(in)), out_counts(std::move(out)), value(plain) {
    value.in_counts = in_counts;
    value.out_counts = out_counts;
  }
  OwnedArguments(const OwnedArguments&) = delete;
  OwnedArguments& operator=(const OwnedArguments&) = delete;

  std::vector<std::size_t> in_counts, out_counts;
  Arguments value;
};

/// CallOptions, Arguments and Message. Python creates them with keywords only and cannot change
/// them.
void bind_calls(nanobind::module_& module);

}  // namespace farandole::bindings
