// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "reduce/reduce.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>

#include <cstddef>
#include <cstdint>
#include <optional>

#include "bindings.hpp"
#include "device/cpu/line_time.hpp"

namespace nb = nanobind;

namespace farandole::bindings {
namespace {

void reduce_into(std::uintptr_t target, std::uintptr_t source, std::uint64_t count, DType dtype,
                 Reduction reduction) {
  const ReduceKernel kernel = take(find_kernel(dtype, reduction));
  const nb::gil_scoped_release release;
  auto* into = reinterpret_cast<std::byte*>(target);
  kernel(into, into, reinterpret_cast<const std::byte*>(source), Count{count});
}

std::optional<double> line_seconds(int core, int other) {
  const nb::gil_scoped_release release;
  const auto took = line_time(core, other);
  return took ? std::optional(took->count()) : std::nullopt;
}

}  // namespace

void bind_reduce(nb::module_& module) {
  using namespace nb::literals;
  module.def("reduce_into", &reduce_into, nb::kw_only(), "target"_a, "source"_a, "count"_a,
             "dtype"_a.noconvert(), "reduction"_a.noconvert());
  module.def("line_seconds", &line_seconds, "core"_a, "other"_a);
}

}  // namespace farandole::bindings
