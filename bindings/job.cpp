// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "bindings.hpp"
#include "farandole/farandole.hpp"

namespace nb = nanobind;

namespace farandole::bindings {
namespace {

nb::bytes bytes(std::string_view text) {
  return nb::bytes(text.data(), text.size());
}

/// A store written in Python: an object with set(key, bytes), get(key, seconds), which returns None
/// when the time is up, and add(key, amount). Its exceptions become errors. One that must end the
/// program, like KeyboardInterrupt, is kept for raise_ending().
class PythonStore final : public Store {
 public:
  PythonStore(nb::object store, std::string name)
      : store_(std::move(store)), name_(std::move(name)) {}
  ~PythonStore() override {
    const nb::gil_scoped_acquire acquire;
    store_.reset();
    ending_.reset();
  }

  Result<void> set(const std::string& key, std::string_view value) override {
    return call<void>([&] { store_.attr("set")(key, bytes(value)); });
  }
  Result<std::string> get(const std::string& key, std::chrono::milliseconds timeout) override {
    auto value = call<std::optional<std::string>>([&]() -> std::optional<std::string> {
      const double seconds = static_cast<double>(timeout.count()) / 1000;
      const nb::object found = store_.attr("get")(key, seconds);
      if (found.is_none()) return std::nullopt;
      const auto content = nb::cast<nb::bytes>(found);
      return std::string(content.c_str(), content.size());
    });
    if (!value) return value.error();
    if (*value) return **std::move(value);
    return Error{ErrorKind::kTimedOut, "there is no '" + key + "' in " + name_ + "."};
  }
  Result<std::int64_t> add(const std::string& key, std::int64_t amount) override {
    return call<std::int64_t>(
        [&] { return nb::cast<std::int64_t>(store_.attr("add")(key, amount)); });
  }
  std::string name() const override { return name_; }

  /// Raises the exception that must end the program, if there was one.
  void raise_ending() {
    if (!ending_.is_valid()) return;
    const nb::object exception = std::exchange(ending_, nb::object());
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
    throw nb::python_error();
  }

 private:
  template <class T, class Call>
  Result<T> call(Call what) {
    const nb::gil_scoped_acquire acquire;
    try {
      if constexpr (std::is_void_v<T>) {
        what();
        return {};
      } else {
        return what();
      }
    } catch (nb::python_error& error) {
      if (!PyErr_GivenExceptionMatches(error.type().ptr(), PyExc_Exception)) {
        ending_ = nb::borrow(error.value());
      }
      const std::string kind = nb::cast<std::string>(error.type().attr("__name__"));
      return Error{ErrorKind::kInternal,
                   kind + ": " + nb::cast<std::string>(nb::str(error.value()))};
    } catch (const nb::cast_error&) {
      return Error{ErrorKind::kInvalidArgument, "the store answered with a wrong type."};
    }
  }

  nb::object store_, ending_;
  const std::string name_;
};

void set_secret(Job& job, const nb::bytes& secret) {
  job.secret = Secret(std::string_view(secret.c_str(), secret.size()));
}

}  // namespace

std::unique_ptr<Context> from_job(const Job& job) {
  auto context = [&] {
    const nb::gil_scoped_release release;
    return Context::from_job(job);
  }();
  if (!context) {
    if (auto* const store = dynamic_cast<PythonStore*>(job.store.get())) store->raise_ending();
  }
  return take(std::move(context));
}

namespace {

template <class Class>
void bind_store_calls(Class& store) {
  using namespace nb::literals;
  store
      .def(
          "set",
          [](Store& self, const std::string& key, const nb::bytes& value) {
            const std::string text(value.c_str(), value.size());
            auto done = [&] {
              const nb::gil_scoped_release release;
              return self.set(key, text);
            }();
            take(std::move(done));
          },
          "key"_a, "value"_a)
      .def(
          "get",
          [](Store& self, const std::string& key, double timeout) {
            auto value = [&] {
              const nb::gil_scoped_release release;
              return self.get(key, milliseconds(timeout));
            }();
            return bytes(take(std::move(value)));
          },
          "key"_a, "timeout"_a)
      .def(
          "add",
          [](Store& self, const std::string& key, std::int64_t amount) {
            auto sum = [&] {
              const nb::gil_scoped_release release;
              return self.add(key, amount);
            }();
            return take(std::move(sum));
          },
          "key"_a, "amount"_a)
      .def_prop_ro("reach", [](const Store& self) { return static_cast<int>(self.reach()); })
      .def_prop_ro("name", &Store::name);
}

void bind_fields(nb::class_<Job>& job) {
  const auto time = [&](const char* name, std::chrono::milliseconds Job::* member) {
    job.def_prop_rw(
        name,
        [member](const Job& self) { return static_cast<double>((self.*member).count()) / 1000; },
        [member](Job& self, double seconds) { self.*member = milliseconds(seconds); });
  };
  time("timeout", &Job::timeout);
  time("start_timeout", &Job::start_timeout);
  job.def_prop_rw(
         "rank", [](const Job& self) { return self.rank.value(); },
         [](Job& self, int rank) { self.rank = Rank{rank}; })
      .def_rw("size", &Job::size)
      .def_rw("local_rank", &Job::local_rank)
      .def_rw("local_size", &Job::local_size)
      .def_rw("store", &Job::store)
      .def_rw("prefix", &Job::prefix)
      .def_rw("trust_store", &Job::trust_store)
      .def_rw("id", &Job::id)
      .def_rw("address", &Job::address)
      .def_rw("port", &Job::port)
      .def_rw("interface", &Job::interface)
      .def_rw("host", &Job::host)
      .def_rw("host_id", &Job::host_id)
      .def("set_secret", &set_secret);
}

}  // namespace

void bind_job(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<Store> store(module, "Store");
  bind_store_calls(store);
  nb::class_<MemoryStore, Store>(module, "MemoryStore").def(nb::init<>());
  nb::class_<FileStore, Store>(module, "FileStore")
      .def_static(
          "open", [](const std::string& folder) { return take(FileStore::open(folder)); },
          "folder"_a);
  module.def(
      "python_store",
      [](nb::object object, const std::string& name) -> std::shared_ptr<Store> {
        return std::make_shared<PythonStore>(std::move(object), name);
      },
      "store"_a, "name"_a);
  nb::class_<Job> job(module, "Job");
  job.def(nb::init<>());
  bind_fields(job);
}

}  // namespace farandole::bindings
