// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "calls.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <string>
#include <utility>

#include "bindings.hpp"

namespace nb = nanobind;

namespace farandole::bindings {
namespace {

using Counts = std::vector<std::size_t>;

/// Sets `background` as run() needs it.
void make_options(CallOptions* self, std::string algorithm, std::string name, double factor,
                  bool deterministic) {
  new (self) CallOptions{.algorithm = std::move(algorithm),
                         .name = std::move(name),
                         .factor = factor,
                         .background = false,
                         .deterministic = deterministic};
}

/// The same options for a call on this stream.
CallOptions on_stream(const CallOptions& options, std::uintptr_t stream) {
  CallOptions changed = options;
  changed.stream = reinterpret_cast<void*>(stream);
  return changed;
}

void make_arguments(OwnedArguments* self, Collective collective, std::uintptr_t input,
                    std::uintptr_t output, std::size_t count, DType dtype, Reduction reduction,
                    int root, bool by_rank, Counts in_counts, Counts out_counts) {
  const Arguments plain{.collective = collective,
                        .in = reinterpret_cast<const void*>(input),
                        .out = reinterpret_cast<void*>(output),
                        .count = Count{count},
                        .dtype = dtype,
                        .reduction = reduction,
                        .root = Rank{root},
                        .by_rank = by_rank};
  new (self) OwnedArguments(plain, std::move(in_counts), std::move(out_counts));
}

void make_message(Message* self, Message::Kind kind, std::uintptr_t data, std::size_t count,
                  DType dtype, int peer) {
  new (self) Message{kind, reinterpret_cast<void*>(data), Count{count}, dtype, Rank{peer}};
}

}  // namespace

void bind_calls(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<CallOptions>(module, "CallOptions")
      .def("__init__", &make_options, nb::kw_only(), "algorithm"_a = "", "name"_a = "",
           "factor"_a = 1.0, "deterministic"_a = false)
      .def("on", &on_stream, "stream"_a);
  nb::class_<OwnedArguments>(module, "Arguments")
      .def("__init__", &make_arguments, nb::kw_only(), "collective"_a.noconvert(), "input"_a = 0,
           "output"_a = 0, "count"_a = 0, "dtype"_a.noconvert() = DType::kUInt8,
           "reduction"_a.noconvert() = Reduction::kSum, "root"_a = 0, "by_rank"_a = false,
           "in_counts"_a = Counts{}, "out_counts"_a = Counts{});
  nb::class_<Message>(module, "Message")
      .def("__init__", &make_message, nb::kw_only(), "kind"_a.noconvert(), "data"_a, "count"_a,
           "dtype"_a.noconvert(), "peer"_a);
}

}  // namespace farandole::bindings
