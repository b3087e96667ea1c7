// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bindings.hpp"
#include "calls.hpp"
#include "farandole/farandole.hpp"
#include "plain_array.hpp"

namespace nb = nanobind;

namespace farandole::bindings {
namespace {

/// Waits without the GIL. Control-C ends the wait: operations in flight are aborted first, since
/// Python may free their buffers once the exception is raised.
void wait(Request& request) {
  for (;;) {
    Result<bool> ended = [&] {
      const nb::gil_scoped_release release;
      return request.wait_for(kSignalInterval);
    }();
    if (take(std::move(ended))) return;
    if (PyErr_CheckSignals() == 0) continue;
    nb::python_error interrupted;
    {
      const nb::gil_scoped_release release;
      request.abort("interrupted by a signal");
      (void)request.wait();
    }
    throw interrupted;
  }
}

/// Runs a call to its end; most calls release the GIL only once.
template <class What>
void run(Communicator& self, const What& what, const CallOptions& options) {
  std::optional<Request> request;
  auto ended = [&]() -> Result<bool> {
    const nb::gil_scoped_release release;
    auto started = self.start(what, options);
    if (!started) return started.error();
    request = *std::move(started);
    return request->wait_for(kSignalInterval);
  }();
  if (!take(std::move(ended))) wait(*request);
}

void run_call(Communicator& self, const OwnedArguments& arguments, const CallOptions& options) {
  run(self, arguments.value, options);
}

/// The same options for calls whose caller does not wait at once.
CallOptions in_background(const CallOptions& options) {
  CallOptions changed = options;
  changed.background = true;
  return changed;
}

/// Starts without the GIL.
template <class What>
Request start(Communicator& self, const What& what, const CallOptions& options) {
  auto request = [&] {
    const nb::gil_scoped_release release;
    return self.start(what, options);
  }();
  return take(std::move(request));
}

Request start_call(Communicator& self, const OwnedArguments& arguments,
                   const CallOptions& options) {
  return start(self, arguments.value, in_background(options));
}

/// False, with nothing done, unless both arrays are plain and alike.
bool allreduce_plain(Communicator& self, nb::handle array, nb::handle out, Reduction reduction,
                     const CallOptions& options) {
  const PlainArray target(out, true);
  const std::optional<DType> dtype = target.dtype();
  if (!dtype) return false;
  Arguments arguments{.collective = Collective::kAllreduce,
                      .in = target.data(),
                      .out = target.data(),
                      .count = target.count(),
                      .dtype = *dtype,
                      .reduction = reduction};
  if (array.is(out)) {
    run(self, arguments, options);
    return true;
  }
  const PlainArray source(array, false);
  if (source.dtype() != dtype || !source.has_shape_of(target)) return false;
  arguments.in = source.data();
  run(self, arguments, options);
  return true;
}

using Messages = std::vector<Message>;

void run_messages(Communicator& self, const Messages& messages, const CallOptions& options) {
  run<std::span<const Message>>(self, messages, options);
}

Request start_messages(Communicator& self, const Messages& messages, const CallOptions& options) {
  return start<std::span<const Message>>(self, messages, in_background(options));
}

/// Enqueues a call on the memory of a device, whose stream waits for its end.
void run_on_stream(Communicator& self, const OwnedArguments& arguments,
                   const CallOptions& options) {
  together([&] { return self.run(arguments.value, options); });
}

void run_messages_on_stream(Communicator& self, const Messages& messages,
                            const CallOptions& options) {
  together([&] { return self.batch(messages, options); });
}

void order(Request& request, std::uintptr_t stream) {
  together([&] { return request.order(reinterpret_cast<void*>(stream)); });
}

std::vector<int> world_ranks(const Communicator& self) {
  std::vector<int> ranks;
  for (const Rank rank : self.world_ranks()) ranks.push_back(rank.value());
  return ranks;
}

std::optional<Communicator> split(Communicator& self, std::optional<std::int64_t> color,
                                  std::int64_t key) {
  return together([&] { return self.split(color, key); });
}

std::vector<Rank> ranks_of(const std::vector<int>& numbers) {
  std::vector<Rank> ranks;
  for (const int number : numbers) ranks.push_back(Rank{number});
  return ranks;
}

std::optional<Communicator> group(Communicator& self, const std::vector<int>& ranks) {
  return together([&, list = ranks_of(ranks)] { return self.group(list); });
}

Communicator create_group(Communicator& self, const std::vector<int>& ranks, int tag,
                          std::optional<double> timeout) {
  std::optional<std::chrono::milliseconds> limit;
  if (timeout) limit = milliseconds(*timeout);
  return together([&, list = ranks_of(ranks)] { return self.create_group(list, tag, limit); });
}

std::string algorithm(const Communicator& self, Collective collective, std::size_t bytes) {
  const nb::gil_scoped_release release;
  return self.algorithm(collective, Bytes{bytes});
}

void set_algorithm(Communicator& self, Collective collective, std::size_t bytes,
                   const std::string& algorithm) {
  together([&] { return self.set_algorithm(collective, Bytes{bytes}, algorithm); });
}

}  // namespace

void bind_communicator(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<Request> request(module, "Request");
  request.def("wait", &wait).def("order", &order, "stream"_a).def("test", [](Request& self) {
    return take(self.test());
  });
  bind_completions(module, request);
  bind_calls(module);
  nb::class_<Communicator>(module, "Communicator")
      .def_prop_ro("rank", [](const Communicator& self) { return self.rank().value(); })
      .def_prop_ro("size", &Communicator::size)
      .def_prop_ro("world_ranks", &world_ranks)
      .def("run", &run_call, "arguments"_a, "options"_a)
      .def("start", &start_call, "arguments"_a, "options"_a)
      .def("run_on_stream", &run_on_stream, "arguments"_a, "options"_a)
      .def("run_messages_on_stream", &run_messages_on_stream, "messages"_a, "options"_a)
      .def("allreduce_plain", &allreduce_plain, "array"_a, "out"_a, "reduction"_a.noconvert(),
           "options"_a)
      .def("run_messages", &run_messages, "messages"_a, "options"_a)
      .def("start_messages", &start_messages, "messages"_a, "options"_a)
      .def("algorithm", &algorithm, "collective"_a.noconvert(), "bytes"_a)
      .def("set_algorithm", &set_algorithm, "collective"_a.noconvert(), "bytes"_a, "algorithm"_a)
      .def("split", &split, "color"_a.none(), "key"_a = 0)
      .def("group", &group, "ranks"_a)
      .def("create_group", &create_group, "ranks"_a, "tag"_a = 0, "timeout"_a = nb::none())
      .def("node", [](Communicator& self) { return together([&] { return self.node(); }); })
      .def("across", [](Communicator& self) { return together([&] { return self.across(); }); })
      .def(
          "abort",
          [](Communicator& self, const std::string& reason) {
            together([&] { return self.abort(reason); });
          },
          "reason"_a)
      .def("free", [](Communicator& self) { take(self.free()); });
}

}  // namespace farandole::bindings
