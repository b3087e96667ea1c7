// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "abi/status.hpp"
#include "farandole/farandole.h"
#include "farandole/farandole.hpp"

// What the handles of the C interface point to. Each begins with a number that identifies its kind.
namespace farandole::abi {

enum class HandleKind : std::uint32_t {
  kContext = 0xfa40d001,
  kCommunicator = 0xfa40d002,
  kRequest = 0xfa40d003,
  kMemory = 0xfa40d004,
};

}  // namespace farandole::abi

struct farandole_context {
  static constexpr auto kKind = farandole::abi::HandleKind::kContext;
  static constexpr const char* kNoun = "a context";
  farandole::abi::HandleKind kind = kKind;
  std::unique_ptr<farandole::Context> value;
};

struct farandole_communicator {
  static constexpr auto kKind = farandole::abi::HandleKind::kCommunicator;
  static constexpr const char* kNoun = "a communicator";
  farandole::abi::HandleKind kind = kKind;
  farandole::Communicator value;
};

struct farandole_request {
  static constexpr auto kKind = farandole::abi::HandleKind::kRequest;
  static constexpr const char* kNoun = "a request";
  farandole::abi::HandleKind kind = kKind;
  farandole::Request value;
};

struct farandole_memory {
  static constexpr auto kKind = farandole::abi::HandleKind::kMemory;
  static constexpr const char* kNoun = "memory that farandole_allocate gave";
  farandole::abi::HandleKind kind = kKind;
  std::shared_ptr<std::byte> value;
};

namespace farandole::abi {

/// Errors    kInvalidArgument naming the argument, if `handle` is null or of another kind.
template <class Handle>
Result<void> check_handle(const char* call, const char* argument, const Handle* handle) {
  if (handle == nullptr) return wrong_argument(call, argument, "null", Handle::kNoun);
  if (handle->kind == Handle::kKind) return {};
  return wrong_argument(call, argument, "a pointer to something else", Handle::kNoun);
}

/// Checks that the place for a result is not null, and sets it to null or 0 until there is one.
template <class Value>
Result<void> check_target(const char* call, const char* argument, Value* target) {
  if (target == nullptr) return wrong_argument(call, argument, "null", "where to write the result");
  *target = Value{};
  return {};
}

template <class Handle, class Value>
void make_handle(Handle** target, Value&& value) {
  *target = new Handle{.value = std::forward<Value>(value)};
}

/// The body of the release functions; null is fine.
template <class Handle>
farandole_status release(const char* call, const char* argument, Handle* handle) noexcept {
  if (handle == nullptr) return FARANDOLE_OK;
  return guarded(call, [&]() -> Result<void> {
    if (auto valid = check_handle(call, argument, handle); !valid) return valid;
    delete handle;
    return {};
  });
}

}  // namespace farandole::abi
