// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <nanobind/nanobind.h>
#include <nanobind/stl/tuple.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>

#include "bindings.hpp"
#include "farandole/farandole.hpp"

namespace nb = nanobind;

namespace farandole::bindings {
namespace {

/// Passes the ends of operations from the engine to the Python thread that calls their callbacks:
/// the engine must not wait for the GIL.
///
/// Threads   any.
class Completions {
 public:
  struct End {
    std::uint64_t number = 0;
    std::optional<Error> error;
  };

  void push(std::uint64_t number, const Result<void>& outcome) {
    const std::lock_guard lock(mutex_);
    ends_.push_back({number, outcome ? std::nullopt : std::optional(outcome.error())});
    changed_.notify_one();
  }
  End pop() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !ends_.empty(); });
    End end = std::move(ends_.front());
    ends_.pop_front();
    return end;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<End> ends_;
};

/// Never destroyed: an engine may still report an end while the process exits.
Completions& completions() {
  static auto* const instance = new Completions;
  return *instance;
}

nb::tuple next_completion() {
  const Completions::End end = [] {
    const nb::gil_scoped_release release;
    return completions().pop();
  }();
  return nb::make_tuple(end.number, end.error ? exception_of(*end.error) : nb::none());
}

}  // namespace

void bind_completions(nb::module_& module, nb::class_<Request>& request) {
  using namespace nb::literals;
  request.def(
      "on_complete",
      [](Request& self, std::uint64_t number) {
        take(self.on_complete(
            [number](const Result<void>& outcome) { completions().push(number, outcome); }));
      },
      "number"_a);
  module.def("next_completion", &next_completion);
  module.def("end_completions", [] { completions().push(0, Result<void>()); });
}

}  // namespace farandole::bindings
