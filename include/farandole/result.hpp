// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace farandole {

/// What went wrong; each kind says what the caller may do next.
enum class ErrorKind : std::uint8_t {
  kInvalidArgument,  // The caller's mistake, found before any byte moved. Retry is safe.
  kUnsupported,      // This build or transport cannot; the planner may choose another path.
  kMismatch,         // Ranks disagree on dtype, shape or order. The communicator lives on.
  kTimedOut,         // A deadline passed. The communicator is broken.
  kRankFailed,       // A rank is known to be gone. The communicator is broken; see create_group().
  kInternal,         // Our bug. Please report it with the schedule dump.
  kAborted,          // A member ended the communicator on purpose. Others go on.
};

/// The process at the other end, as far as it is known.
struct ProcessName {
  int rank = -1;
  std::string host;
  int pid = 0;
};

/// One failure: its kind, a complete sentence, and for kRankFailed and kAborted the culprit.
struct Error {
  ErrorKind kind = ErrorKind::kInternal;
  std::string message;
  std::optional<ProcessName> culprit = std::nullopt;
  std::string operation = {};  // what was in flight, if anything was
};

/// A value or an Error. Nothing in the library's core throws.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  explicit operator bool() const { return state_.index() == 0; }
  T& operator*() & { return std::get<0>(state_); }
  const T& operator*() const& { return std::get<0>(state_); }
  T&& operator*() && { return std::get<0>(std::move(state_)); }
  T* operator->() { return &std::get<0>(state_); }
  const T* operator->() const { return &std::get<0>(state_); }
  const Error& error() const& { return std::get<1>(state_); }
  Error&& error() && { return std::get<1>(std::move(state_)); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() {}  // not `= default`: then `return {}` would first fill all of it with zeros
  Result(Error error) : error_(std::move(error)) {}

  explicit operator bool() const { return !error_.has_value(); }
  const Error& error() const& { return *error_; }
  Error&& error() && { return *std::move(error_); }

 private:
  std::optional<Error> error_;
};

}  // namespace farandole
