// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bindings.hpp"
#include "farandole/farandole.hpp"
#include "model/machine.hpp"

namespace nb = nanobind;

namespace farandole::bindings {
namespace {

int get_buffer(PyObject* object, Py_buffer* view, int flags) {
  auto* self = nb::inst_ptr<OwnedBuffer>(object);
  return PyBuffer_FillInfo(view, object, self->data.get(), static_cast<Py_ssize_t>(self->size), 0,
                           flags);
}

PyType_Slot kOwnedBufferSlots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(&get_buffer)},
                                   {0, nullptr}};

/// Address and read-only flag of a contiguous buffer, which the caller keeps alive. A pair, since
/// every call asks for it: an object with fields takes 60 ns longer.
nb::tuple buffer(nb::handle object) {
  Py_buffer view;
  if (PyObject_GetBuffer(object.ptr(), &view, PyBUF_SIMPLE) != 0) throw nb::python_error();
  const nb::tuple found =
      nb::make_tuple(reinterpret_cast<std::uintptr_t>(view.buf), view.readonly != 0);
  PyBuffer_Release(&view);
  return found;
}

/// An array that supports DLPack.
struct DLPackArray {
  std::uintptr_t pointer = 0;
  std::vector<std::size_t> shape;
  std::string dtype;
  bool is_contiguous = true;
  bool is_on_cpu = false;
  bool read_only = false;
};

/// By type code of DLPack 1.1. The number of bits is added to names that do not contain it.
std::string name_of(nb::dlpack::dtype dtype) {
  static constexpr const char* kKinds[] = {"int",           "uint", "float",      "", "bfloat",
                                           "complex",       "bool", "",           "", "",
                                           "float8_e4m3fn", "",     "float8_e5m2"};
  std::string name = dtype.code < std::size(kKinds) ? kKinds[dtype.code] : "";
  const bool complete = name == "bool" || name.starts_with("float8");
  if (!complete) name += std::to_string(dtype.bits);
  if (dtype.lanes != 1) name += "x" + std::to_string(dtype.lanes);
  return name;
}

/// None if the object gives no array. `read_only` is found out only if `writable` is asked for.
std::optional<DLPackArray> dlpack(nb::handle object, bool writable) {
  nb::ndarray<nb::ro> array;
  if (!nb::try_cast(object, array)) return std::nullopt;
  nb::ndarray<> written;
  DLPackArray found{.pointer = reinterpret_cast<std::uintptr_t>(array.data()),
                    .dtype = name_of(array.dtype()),
                    .is_on_cpu = array.device_type() == nb::device::cpu::value,
                    .read_only = writable && !nb::try_cast(object, written)};
  std::int64_t expected = 1;
  for (std::size_t i = array.ndim(); i-- > 0;) {
    found.is_contiguous &= array.shape(i) <= 1 || array.stride(i) == expected;
    expected *= static_cast<std::int64_t>(array.shape(i));
  }
  for (std::size_t i = 0; i < array.ndim(); ++i) found.shape.push_back(array.shape(i));
  return found;
}

void bind_arrays(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<DLPackArray>(module, "DLPackArray")
      .def_ro("pointer", &DLPackArray::pointer)
      .def_ro("shape", &DLPackArray::shape)
      .def_ro("dtype", &DLPackArray::dtype)
      .def_ro("is_contiguous", &DLPackArray::is_contiguous)
      .def_ro("is_on_cpu", &DLPackArray::is_on_cpu)
      .def_ro("read_only", &DLPackArray::read_only);
  module.def("buffer", &buffer, "object"_a);
  module.def(
      "use_devices", [](const std::string& kind) { together([&] { return use_devices(kind); }); },
      "kind"_a);
  module.def(
      "order_streams",
      [](std::uintptr_t pointer, std::uintptr_t before, std::uintptr_t after) {
        together([&] {
          return order_streams(reinterpret_cast<const void*>(pointer),
                               reinterpret_cast<void*>(before), reinterpret_cast<void*>(after));
        });
      },
      "pointer"_a, "before"_a, "after"_a);
  module.def("dlpack", &dlpack, "array"_a, "writable"_a = false);
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
  result["rejected_connections"] = from.rejected_connections;
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

void bind_context(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<OwnedBuffer>(module, "OwnedBuffer", nb::type_slots(kOwnedBufferSlots))
      .def_prop_ro(
          "pointer",
          [](const OwnedBuffer& self) { return reinterpret_cast<std::uintptr_t>(self.data.get()); })
      .def_ro("nbytes", &OwnedBuffer::size);
  bind_arrays(module);
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
  module.def("inproc", &inproc, "rank_count"_a, "peer_memory"_a = true, "transport"_a = "");
}

}  // namespace farandole::bindings
