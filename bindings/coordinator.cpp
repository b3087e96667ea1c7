// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "farandole/coordinator.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings.hpp"

namespace nb = nanobind;

namespace farandole::bindings {
namespace {

void make_call(TensorCall* self, std::string name, Collective collective, Reduction reduction,
               bool adasum, DType dtype, std::vector<std::int64_t> shape, int root, double prescale,
               double postscale, bool leaves_out_joined, std::vector<std::int64_t> splits,
               std::uintptr_t input, std::uintptr_t output) {
  new (self) TensorCall{.name = std::move(name),
                        .collective = collective,
                        .reduction = reduction,
                        .adasum = adasum,
                        .dtype = dtype,
                        .shape = std::move(shape),
                        .root = Rank{root},
                        .prescale = prescale,
                        .postscale = postscale,
                        .leaves_out_joined = leaves_out_joined,
                        .splits = std::move(splits),
                        .in = reinterpret_cast<const void*>(input),
                        .out = reinterpret_cast<void*>(output)};
}

void bind_call(nb::module_& module) {
  using namespace nb::literals;
  using Lengths = std::vector<std::int64_t>;
  const TensorCall other;
  nb::class_<TensorCall>(module, "TensorCall")
      .def("__init__", &make_call, nb::kw_only(), "name"_a, "collective"_a.noconvert(),
           "reduction"_a.noconvert() = other.reduction, "adasum"_a = other.adasum,
           "dtype"_a.noconvert() = DType::kUInt8, "shape"_a = Lengths{}, "root"_a = 0,
           "prescale"_a = other.prescale, "postscale"_a = other.postscale,
           "leaves_out_joined"_a = other.leaves_out_joined, "splits"_a = Lengths{}, "input"_a = 0,
           "output"_a = 0)
      .def_prop_ro("input",
                   [](const TensorCall& self) { return reinterpret_cast<std::uintptr_t>(self.in); })
      .def_prop_ro("output", [](const TensorCall& self) {
        return reinterpret_cast<std::uintptr_t>(self.out);
      });
}

std::vector<Submission> submit(Coordinator& self, std::vector<TensorCall> calls,
                               const std::string& group) {
  auto submitted = [&] {
    const nb::gil_scoped_release release;
    return self.submit(std::move(calls), group);
  }();
  return take(std::move(submitted));
}

std::chrono::nanoseconds nanoseconds(double seconds) {
  return std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9));
}

std::unique_ptr<Coordinator> create(Context& context, const Communicator& communicator,
                                    std::optional<double> cycle_time,
                                    std::optional<std::size_t> fusion_threshold,
                                    std::optional<std::size_t> cache_capacity,
                                    std::optional<double> stall_warning,
                                    std::optional<double> stall_shutdown) {
  CoordinatorOptions options = take(CoordinatorOptions::from_environment());
  if (cycle_time) options.cycle_time = nanoseconds(*cycle_time);
  if (fusion_threshold) options.fusion_threshold = Bytes{*fusion_threshold};
  if (cache_capacity) options.cache_capacity = *cache_capacity;
  if (stall_warning) options.stall_warning = nanoseconds(*stall_warning);
  if (stall_shutdown) options.stall_shutdown = nanoseconds(*stall_shutdown);
  auto made = [&] {
    const nb::gil_scoped_release release;
    return Coordinator::create(context, communicator, options);
  }();
  return take(std::move(made));
}

nb::dict statistics(const Coordinator& self) {
  const Coordinator::Statistics from = self.statistics();
  nb::dict result;
  result["cycles"] = from.cycles;
  result["talks"] = from.talks;
  result["hits"] = from.hits;
  result["misses"] = from.misses;
  result["evictions"] = from.evictions;
  result["invalidations"] = from.invalidations;
  result["batches"] = from.batches;
  result["tensors"] = from.tensors;
  result["fused_bytes"] = from.fused_bytes;
  result["batches_without_copy"] = from.batches_without_copy;
  result["control_seconds"] = from.control_seconds;
  return result;
}

nb::dict options(const Coordinator& self) {
  const CoordinatorOptions from = self.options();
  const auto seconds = [](std::chrono::nanoseconds time) {
    return std::chrono::duration<double>(time).count();
  };
  nb::dict result;
  result["cycle_time"] = seconds(from.cycle_time);
  result["fusion_threshold"] = from.fusion_threshold.value();
  result["cache_capacity"] = from.cache_capacity;
  result["stall_warning"] = seconds(from.stall_warning);
  result["stall_shutdown"] = seconds(from.stall_shutdown);
  result["size_shift"] = from.size_shift;
  return result;
}

/// Waits without the GIL. Control-C ends the wait, not the operation: the caller keeps the memory.
void wait(Submission& submission) {
  if (take(submission.test())) return;  // many are finished together, then waited for
  for (;;) {
    Result<bool> ended = [&] {
      const nb::gil_scoped_release release;
      return submission.wait_for(kSignalInterval);
    }();
    if (take(std::move(ended))) return;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
}

std::optional<OwnedBuffer> data(const Submission& self) {
  if (!self.data()) return std::nullopt;
  std::size_t count = 1;
  for (const std::int64_t dimension : self.shape()) count *= static_cast<std::size_t>(dimension);
  return OwnedBuffer{self.data(), count * size_of(self.dtype()).value()};
}

}  // namespace

void bind_coordinator(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<Submission>(module, "Submission")
      .def("wait", &wait)
      .def("test", [](Submission& self) { return take(self.test()); })
      .def_prop_ro("data", &data)
      .def_prop_ro("shape", [](const Submission& self) { return self.shape(); })
      .def_prop_ro("rows", [](const Submission& self) { return self.rows(); })
      .def_prop_ro("last_joined",
                   [](const Submission& self) { return self.last_joined().value(); });
  bind_call(module);
  nb::class_<Coordinator>(module, "Coordinator")
      .def_static("create", &create, "context"_a, "communicator"_a, nb::kw_only(),
                  "cycle_time"_a = nb::none(), "fusion_threshold"_a = nb::none(),
                  "cache_capacity"_a = nb::none(), "stall_warning"_a = nb::none(),
                  "stall_shutdown"_a = nb::none())
      .def("submit", &submit, "calls"_a, "group"_a = "")
      .def("join", [](Coordinator& self) { return take(self.join()); })
      .def(
          "configure",
          [](Coordinator& self, double cycle_time, std::size_t fusion_threshold, int size_shift) {
            take(self.configure(nanoseconds(cycle_time), Bytes{fusion_threshold}, size_shift));
          },
          nb::kw_only(), "cycle_time"_a, "fusion_threshold"_a, "size_shift"_a)
      .def("close", &Coordinator::close, nb::call_guard<nb::gil_scoped_release>())
      .def("options", &options)
      .def("statistics", &statistics);
}

}  // namespace farandole::bindings
