// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "base/settings.hpp"
#include "bindings.hpp"
#include "bootstrap/starters.hpp"
#include "device/cpu/copy.hpp"
#include "farandole/types.hpp"

namespace nb = nanobind;

namespace farandole::bindings {
namespace {

nb::str text(std::string_view view) {
  return nb::str(view.data(), view.size());
}

nb::list settings_table() {
  static constexpr const char* kTypes[] = {"text", "integer", "seconds", "bytes", "flag"};
  nb::list rows;
  for (const Setting& setting : settings()) {
    nb::dict row;
    row["name"] = text(setting.name);
    row["type"] = kTypes[static_cast<int>(setting.type)];
    row["default"] = text(setting.default_value);
    row["value"] = text(setting.name == "FARANDOLE_SECRET" ? "" : *text_setting(setting.name));
    row["help"] = text(setting.help);
    rows.append(row);
  }
  return rows;
}

/// The value in force, of the Python type that its row of the table asks for.
nb::object setting(const std::string& name) {
  for (const Setting& row : settings()) {
    if (row.name != name) continue;
    if (row.type == Setting::Type::kFlag) return nb::bool_(take(flag_setting(name)));
    if (row.type == Setting::Type::kText) return nb::str(take(text_setting(name)).c_str());
    const double number = take(number_setting(name));
    if (row.type == Setting::Type::kSeconds) return nb::float_(number);
    return nb::int_(static_cast<std::int64_t>(number));
  }
  raise({ErrorKind::kInvalidArgument, "argument 'name' is '" + name + "', which is no setting."});
}

nb::list names_of(const Names& names) {
  nb::list list;
  for (const char* name : names) {
    if (name != nullptr) list.append(name);
  }
  return list;
}

nb::list starters_table() {
  static constexpr const char* kMeetings[] = {"own", "master", "host", "none"};
  nb::list rows;
  for (const Starter& starter : starters()) {
    nb::dict row;
    row["name"] = starter.name;
    row["meeting"] = kMeetings[static_cast<int>(starter.meeting)];
    row["rank"] = names_of(starter.rank);
    row["size"] = names_of(starter.size);
    row["local_rank"] = names_of(starter.local_rank);
    row["local_size"] = names_of(starter.local_size);
    row["job"] = names_of(starter.job);
    row["step"] = names_of(starter.step);
    rows.append(row);
  }
  return rows;
}

/// What started a process with this environment: a name of the table, or "alone".
std::string started_by(const std::map<std::string, std::string>& environment) {
  const Starter* const starter = starter_of([&](const char* name) -> std::optional<std::string> {
    const auto found = environment.find(name);
    if (found == environment.end() || found->second.empty()) return std::nullopt;
    return found->second;
  });
  return starter != nullptr ? starter->name : "alone";
}

const char* class_name(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kInvalidArgument:
      return "InvalidArgumentError";
    case ErrorKind::kUnsupported:
      return "UnsupportedError";
    case ErrorKind::kMismatch:
      return "MismatchError";
    case ErrorKind::kTimedOut:
      return "TimedOutError";
    case ErrorKind::kRankFailed:
      return "RankFailed";
    case ErrorKind::kAborted:
      return "AbortedError";
    case ErrorKind::kInternal:
      break;
  }
  return "InternalError";
}

// By kind. Looked up once, since nothing can be imported while the interpreter shuts down.
PyObject* error_classes[static_cast<std::size_t>(ErrorKind::kAborted) + 1] = {};

void find_error_classes() {
  const nb::module_ errors = nb::module_::import_("farandole.errors");
  for (std::size_t kind = 0; kind < std::size(error_classes); ++kind) {
    const nb::object found = errors.attr(class_name(static_cast<ErrorKind>(kind)));
    error_classes[kind] = found.inc_ref().ptr();  // for as long as the process lives
  }
}

using Copy = std::tuple<std::uintptr_t, std::uintptr_t, std::size_t>;  // to, from, bytes

void copy_all_to_memory(const std::vector<Copy>& copies) {
  const nb::gil_scoped_release release;
  for (const auto& [to, from, bytes] : copies) {
    copy_to_memory(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
  }
}

}  // namespace

nb::object exception_of(const Error& error) {
  const nb::handle type(error_classes[static_cast<std::size_t>(error.kind)]);
  if (error.kind == ErrorKind::kRankFailed || error.kind == ErrorKind::kAborted) {
    const ProcessName culprit = error.culprit.value_or(ProcessName{});
    return type(text(error.message), culprit.rank, culprit.host.c_str(), culprit.pid,
                text(error.operation));
  }
  return type(text(error.message));
}

void raise(const Error& error) {
  const nb::object exception = exception_of(error);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  throw nb::python_error();
}

}  // namespace farandole::bindings

NB_MODULE(_native, module) {
  using namespace farandole::bindings;
  // A script's arrays and gradients in library memory are often still alive when Python exits.
  nb::set_leak_warnings(false);
  find_error_classes();
  module.attr("VERSION") = FARANDOLE_VERSION;
  module.def("settings", &settings_table);
  module.def("unknown_settings", &farandole::unknown_settings);
  module.def("setting", &setting, nb::arg("name"));
  module.def("starters", &starters_table);
  module.def("started_by", &started_by, nb::arg("environment"));
  module.def("copy_to_memory", &copy_all_to_memory, nb::arg("copies"));
  bind_types(module);
  bind_reduce(module);
  bind_schedule(module);
  bind_model(module);
  bind_planner(module);
  bind_job(module);
  bind_communicator(module);
  bind_context(module);
  bind_coordinator(module);
  bind_simulator(module);
}
