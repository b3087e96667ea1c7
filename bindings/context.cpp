// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "bindings.hpp"
#include "farandole/farandole.hpp"
#include "model/machine.hpp"
#include "plain_array.hpp"

namespace nb = nanobind;

namespace farandole::bindings {
namespace {

/// Waits without the GIL. Control-C ends the wait: what is in flight is aborted first, since
/// Python may free its buffers once the exception is on its way.
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

/// Chunks of different lengths; none: all alike.
using Counts = std::optional<std::vector<std::size_t>>;

/// A collective as Python asks for it.
struct Call {
  int collective, dtype, reduction, root;
  std::uintptr_t input, output;
  std::size_t count;
  std::string algorithm, name;
  double factor;
  bool deterministic;
  Counts in_counts, out_counts;
  bool by_rank;
};

Arguments arguments_of(const Call& call) {
  check_index("collective", call.collective, kCollectiveCount);
  check_index("dtype", call.dtype, kDTypeCount);
  check_index("reduction", call.reduction, kReductionCount);
  Arguments arguments{static_cast<Collective>(call.collective),
                      reinterpret_cast<const void*>(call.input),
                      reinterpret_cast<void*>(call.output),
                      Count{call.count},
                      static_cast<DType>(call.dtype),
                      static_cast<Reduction>(call.reduction),
                      Rank{call.root},
                      call.by_rank};
  if (call.in_counts) arguments.in_counts = *call.in_counts;
  if (call.out_counts) arguments.out_counts = *call.out_counts;
  return arguments;
}

Request start(Communicator& self, const Call& call) {
  const Arguments arguments = arguments_of(call);
  auto request = [&] {
    const nb::gil_scoped_release release;
    return self.start(arguments,
                      {call.algorithm, call.name, call.factor, true, call.deterministic});
  }();
  return take(std::move(request));
}

/// To the end; most calls give the GIL away once.
void run(Communicator& self, const Arguments& arguments, const CallOptions& options) {
  std::optional<Request> request;
  auto ended = [&]() -> Result<bool> {
    const nb::gil_scoped_release release;
    auto started = self.start(arguments, options);
    if (!started) return started.error();
    request = *std::move(started);
    return request->wait_for(kSignalInterval);
  }();
  if (!take(std::move(ended))) wait(*request);
}

void run_call(Communicator& self, const Call& call) {
  run(self, arguments_of(call),
      {call.algorithm, call.name, call.factor, false, call.deterministic});
}

/// False, with nothing done, unless both arrays are plain and alike.
bool allreduce_plain(Communicator& self, nb::handle array, nb::handle out, int reduction,
                     const std::string& algorithm, const std::string& name, double factor,
                     bool deterministic) {
  check_index("reduction", reduction, kReductionCount);
  const PlainArray target(out, true);
  const std::optional<DType> dtype = target.dtype();
  if (!dtype) return false;
  Arguments arguments{.collective = Collective::kAllreduce,
                      .in = target.data(),
                      .out = target.data(),
                      .count = target.count(),
                      .dtype = *dtype,
                      .reduction = static_cast<Reduction>(reduction)};
  const CallOptions options{algorithm, name, factor, false, deterministic};
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

/// Binds run() or start().
template <auto function>
auto collective(Communicator& self, int collective, std::uintptr_t input, std::uintptr_t output,
                std::size_t count, int dtype, int reduction, int root, const std::string& algorithm,
                const std::string& name, double factor, bool deterministic, const Counts& in_counts,
                const Counts& out_counts, bool by_rank) {
  return function(self, {collective, dtype, reduction, root, input, output, count, algorithm, name,
                         factor, deterministic, in_counts, out_counts, by_rank});
}

template <class Class>
void bind_collectives(Class& communicator) {
  using namespace nb::literals;
  const auto bind = [&](const char* name, auto function) {
    communicator.def(name, function, "collective"_a, "input"_a, "output"_a, "count"_a, "dtype"_a,
                     "reduction"_a = 0, "root"_a = 0, "algorithm"_a = "", "name"_a = "",
                     "factor"_a = 1.0, "deterministic"_a = false, "in_counts"_a = nb::none(),
                     "out_counts"_a = nb::none(), "by_rank"_a = false);
  };
  bind("run", &collective<&run_call>);
  bind("start", &collective<&start>);
}

/// Whether it is a send, address, elements, dtype, peer.
using MessageTuple = std::tuple<bool, std::uintptr_t, std::size_t, int, int>;

Request start_messages(Communicator& self, const std::vector<MessageTuple>& tuples,
                       const std::string& name, bool background) {
  std::vector<Message> messages;
  for (const auto& [sends, data, count, dtype, peer] : tuples) {
    check_index("dtype", dtype, kDTypeCount);
    messages.push_back({sends ? Message::Kind::kSend : Message::Kind::kReceive,
                        reinterpret_cast<void*>(data), Count{count}, static_cast<DType>(dtype),
                        Rank{peer}});
  }
  CallOptions options;
  options.name = name;
  options.background = background;
  const nb::gil_scoped_release release;
  Result<Request> request = self.start(messages, options);
  if (request) return *std::move(request);
  const nb::gil_scoped_acquire acquire;
  raise(request.error());
}

std::vector<int> world_ranks(const Communicator& self) {
  std::vector<int> ranks;
  for (const Rank rank : self.world_ranks()) ranks.push_back(rank.value());
  return ranks;
}

/// Makes a communicator without the GIL, since all ranks of the parent have to come.
template <class Make>
auto together(Make make) {
  auto made = [&] {
    const nb::gil_scoped_release release;
    return make();
  }();
  return take(std::move(made));
}

std::optional<Communicator> split(Communicator& self, std::optional<std::int64_t> color,
                                  std::int64_t key) {
  return together([&] { return self.split(color, key); });
}

std::optional<Communicator> group(Communicator& self, const std::vector<int>& ranks) {
  std::vector<Rank> list;
  for (const int rank : ranks) list.push_back(Rank{rank});
  return together([&] { return self.group(list); });
}

void bind_communicator(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<Communicator> communicator(module, "Communicator");
  communicator.def_prop_ro("rank", [](const Communicator& self) { return self.rank().value(); })
      .def_prop_ro("size", &Communicator::size)
      .def_prop_ro("world_ranks", &world_ranks);
  bind_collectives(communicator);
  communicator
      .def("allreduce_plain", &allreduce_plain, "array"_a, "out"_a, "reduction"_a, "algorithm"_a,
           "name"_a, "factor"_a, "deterministic"_a)
      .def(
          "run_messages",
          [](Communicator& self, const std::vector<MessageTuple>& messages,
             const std::string& name) {
            Request request = start_messages(self, messages, name, false);
            wait(request);
          },
          "messages"_a, "name"_a = "")
      .def(
          "start_messages",
          [](Communicator& self, const std::vector<MessageTuple>& messages,
             const std::string& name) { return start_messages(self, messages, name, true); },
          "messages"_a, "name"_a = "")
      .def(
          "algorithm",
          [](const Communicator& self, int collective, std::size_t bytes) {
            check_index("collective", collective, kCollectiveCount);
            const nb::gil_scoped_release release;
            return self.algorithm(static_cast<Collective>(collective), Bytes{bytes});
          },
          "collective"_a, "bytes"_a)
      .def(
          "set_algorithm",
          [](Communicator& self, int collective, std::size_t bytes, const std::string& algorithm) {
            check_index("collective", collective, kCollectiveCount);
            together([&] {
              return self.set_algorithm(static_cast<Collective>(collective), Bytes{bytes},
                                        algorithm);
            });
          },
          "collective"_a, "bytes"_a, "algorithm"_a)
      .def("split", &split, "color"_a.none(), "key"_a = 0)
      .def("group", &group, "ranks"_a)
      .def(
          "create_group",
          [](Communicator& self, const std::vector<int>& ranks, int tag,
             std::optional<double> timeout) {
            std::vector<Rank> list;
            for (const int rank : ranks) list.push_back(Rank{rank});
            std::optional<std::chrono::milliseconds> limit;
            if (timeout) limit = milliseconds(*timeout);
            return together([&] { return self.create_group(list, tag, limit); });
          },
          "ranks"_a, "tag"_a = 0, "timeout"_a = nb::none())
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

int get_buffer(PyObject* object, Py_buffer* view, int flags) {
  auto* self = nb::inst_ptr<OwnedBuffer>(object);
  return PyBuffer_FillInfo(view, object, self->data.get(), static_cast<Py_ssize_t>(self->size), 0,
                           flags);
}

PyType_Slot kOwnedBufferSlots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(&get_buffer)},
                                   {0, nullptr}};

/// Address, bytes and read-only flag of a contiguous buffer; the caller keeps the object alive.
nb::tuple buffer(nb::handle object) {
  Py_buffer view;
  if (PyObject_GetBuffer(object.ptr(), &view, PyBUF_SIMPLE) != 0) throw nb::python_error();
  const nb::tuple result = nb::make_tuple(reinterpret_cast<std::uintptr_t>(view.buf),
                                          static_cast<std::size_t>(view.len), view.readonly != 0);
  PyBuffer_Release(&view);
  return result;
}

/// The same for anything that speaks DLPack, with its dtype by name and its shape; none if it gives
/// no array. Whether it is read-only is asked only of what will be written.
std::optional<nb::tuple> dlpack(nb::handle object, bool writable) {
  nb::ndarray<nb::ro> array;
  if (!nb::try_cast(object, array)) return std::nullopt;
  nb::ndarray<> written;
  const bool read_only = writable && !nb::try_cast(object, written);
  nb::list shape;
  std::int64_t expected = 1;
  bool contiguous = true;
  for (std::size_t i = array.ndim(); i-- > 0;) {
    contiguous &= array.shape(i) <= 1 || array.stride(i) == expected;
    expected *= static_cast<std::int64_t>(array.shape(i));
  }
  for (std::size_t i = 0; i < array.ndim(); ++i) shape.append(array.shape(i));
  // By code of DLPack 1.1. Bits are added to names that do not say them.
  static constexpr const char* kKinds[] = {"int",           "uint", "float",      "", "bfloat",
                                           "complex",       "bool", "",           "", "",
                                           "float8_e4m3fn", "",     "float8_e5m2"};
  const auto dtype = array.dtype();
  std::string name = dtype.code < std::size(kKinds) ? kKinds[dtype.code] : "";
  const bool complete = name == "bool" || name.starts_with("float8");
  if (!complete) name += std::to_string(dtype.bits);
  if (dtype.lanes != 1) name += "x" + std::to_string(dtype.lanes);
  return nb::make_tuple(reinterpret_cast<std::uintptr_t>(array.data()), shape, name, contiguous,
                        array.device_type() == nb::device::cpu::value, read_only);
}

OwnedBuffer allocate(Context& self, std::size_t bytes) {
  return {take(self.allocate(Bytes{bytes})), bytes};
}

nb::dict statistics(const Context& self) {
  const Statistics from = self.statistics();
  nb::dict transports;
  for (const auto& [name, traffic] : from.transports) {
    nb::dict row;
    row["sent_bytes"] = traffic.sent_bytes;
    row["sent_messages"] = traffic.sent_messages;
    row["received_bytes"] = traffic.received_bytes;
    row["received_messages"] = traffic.received_messages;
    transports[name.c_str()] = row;
  }
  nb::dict plans;
  for (const auto& [label, calls] : from.plans) {
    nb::dict row;
    row["calls"] = calls.calls;
    row["bytes"] = calls.bytes;
    plans[label.c_str()] = row;
  }
  nb::dict result;
  result["operations"] = from.operations;
  result["active_seconds"] = from.active_seconds;
  result["wait_seconds"] = from.wait_seconds;
  result["strangers"] = from.strangers;
  result["transports"] = transports;
  result["plans"] = plans;
  return result;
}

nb::list members(const Context& self) {
  nb::list rows;
  for (const MemberInfo& member : self.members()) {
    nb::dict row;
    row["rank"] = member.rank;
    row["local_rank"] = member.local_rank;
    row["host"] = member.host;
    row["pid"] = member.pid;
    rows.append(row);
  }
  return rows;
}

std::unique_ptr<Context> from_environment() {
  Result<std::unique_ptr<Context>> context = [] {
    const nb::gil_scoped_release release;
    return Context::from_environment();
  }();
  return take(std::move(context));
}

std::vector<std::unique_ptr<Context>> inproc(int rank_count, bool peer_memory,
                                             const std::string& transport) {
  auto contexts = [&] {
    const nb::gil_scoped_release release;
    return Context::inproc(rank_count, peer_memory, transport);
  }();
  return take(std::move(contexts));
}

}  // namespace

void check_index(const char* argument, int given, int count) {
  if (given >= 0 && given < count) return;
  raise({ErrorKind::kInvalidArgument, "argument '" + std::string(argument) + "' is " +
                                          std::to_string(given) + ", allowed is 0 to " +
                                          std::to_string(count - 1) + "."});
}

void bind_context(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<Request> request(module, "Request");
  request.def("wait", &wait).def("test", [](Request& self) { return take(self.test()); });
  bind_completions(module, request);
  nb::class_<OwnedBuffer>(module, "OwnedBuffer", nb::type_slots(kOwnedBufferSlots))
      .def_prop_ro(
          "pointer",
          [](const OwnedBuffer& self) { return reinterpret_cast<std::uintptr_t>(self.data.get()); })
      .def_ro("nbytes", &OwnedBuffer::size);
  bind_communicator(module);
  nb::class_<Context>(module, "Context")
      .def_static("from_environment", &from_environment)
      .def_static("from_job", &from_job, "job"_a)
      .def_prop_ro("rank", [](const Context& self) { return self.rank().value(); })
      .def_prop_ro("size", &Context::size)
      .def_prop_ro("local_rank", &Context::local_rank)
      .def_prop_ro("local_size", &Context::local_size)
      .def_prop_ro("cross_rank", &Context::cross_rank)
      .def_prop_ro("cross_size", &Context::cross_size)
      .def_prop_ro("world", &Context::world)
      .def_prop_ro("members", &members)
      .def_prop_ro("started_by", &Context::started_by)
      .def_prop_ro("reaches_all_memory", &Context::reaches_all_memory)
      .def_prop_ro("occupies_host", &Context::occupies_host)
      .def_prop_ro("shares_cores", &Context::shares_cores)
      .def(
          "set_machine",
          [](Context& self, const Machine& machine) {
            together([&] { return self.set_machine(machine); });
          },
          "machine"_a)
      .def("allocate", &allocate, "nbytes"_a)
      .def("statistics", &statistics)
      .def("start_timeline",
           [](Context& self, const std::string& path) { take(self.start_timeline(path)); })
      .def("stop_timeline", [](Context& self) { take(self.stop_timeline()); })
      .def("dump", &Context::dump, nb::call_guard<nb::gil_scoped_release>())
      .def("shutdown", &Context::shutdown, nb::call_guard<nb::gil_scoped_release>());
  module.def("buffer", &buffer, "object"_a);
  module.def("dlpack", &dlpack, "array"_a, "writable"_a = false);
  module.def("inproc", &inproc, "rank_count"_a, "peer_memory"_a = true, "transport"_a = "");
}

}  // namespace farandole::bindings
