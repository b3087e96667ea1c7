// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "abi/constants.hpp"
#include "abi/status.hpp"

namespace farandole::abi {

/// Checks the fields of one struct of the caller and keeps the first error. Messages call the
/// struct "arguments" or "messages[2]".
class Checks {
 public:
  Checks(const char* call, std::string argument) : call_(call), argument_(std::move(argument)) {}

  /// A constant from 0 to `last`.
  void constant(const char* field, std::int32_t given, std::int32_t last) {
    range(field, given, 0, last, "a constant from ");
  }
  void range(const char* field, std::int32_t given, std::int32_t least, std::int32_t most,
             const char* allowed = "") {
    if (given >= least && given <= most) return;
    wrong(field, std::to_string(given),
          allowed + std::to_string(least) + " to " + std::to_string(most));
  }
  /// A time in milliseconds; 0 stands for the default.
  void milliseconds(const char* field, std::int32_t given) {
    if (given < 0) wrong(field, std::to_string(given), "0 or more");
  }
  void flag(const char* field, std::int32_t given) {
    if (given != 0 && given != 1) wrong(field, std::to_string(given), "0 or 1");
  }
  void reserved(std::int32_t given) {
    if (given != 0) wrong("reserved", std::to_string(given), "0");
  }
  /// A list of counts, which only calls with by_rank have.
  void counts(const char* field, const std::size_t* counts, std::size_t length, bool by_rank) {
    if (!by_rank && (counts != nullptr || length != 0)) {
      wrong(field, "given", "null and of length 0, unless by_rank is 1");
    } else if (counts == nullptr && length != 0) {
      wrong(field, "null", "a list of " + std::to_string(length) + " counts");
    }
  }
  void struct_size(std::size_t given, std::size_t least) {
    if (given >= least && given <= kStructSizeMax && given % alignof(std::size_t) == 0) return;
    wrong("struct_size", std::to_string(given),
          "sizeof of the struct, from " + std::to_string(least) + " to " +
              std::to_string(kStructSizeMax) + " bytes");
  }
  void stream(const void* given) {
    if (given == nullptr || first_) return;
    wrong("stream", "given", "null, since this library moves no memory of devices");
    first_->kind = ErrorKind::kUnsupported;
  }
  /// The bytes of a struct after the fields that the library knows.
  void newer_fields(std::span<const unsigned char> bytes) {
    if (first_ || std::ranges::all_of(bytes, [](unsigned char byte) { return byte == 0; })) return;
    first_ = Error{ErrorKind::kUnsupported,
                   std::string(call_) + ": argument '" + argument_ +
                       "' sets a field that this library, which is older than its caller, does "
                       "not have."};
  }
  void wrong(const char* field, const std::string& given, const std::string& allowed) {
    if (!first_) first_ = wrong_argument(call_, argument_ + "." + field, given, allowed);
  }

  /// A copy of the fields that the library knows and the caller has; others are zero.
  template <class Struct>
  Struct read(const Struct* given, std::size_t size_min) {
    Struct known{};
    if (given == nullptr) {
      first_ = wrong_argument(call_, argument_, "null", "a pointer to a struct");
      return known;
    }
    const std::size_t size = given->struct_size;
    struct_size(size, size_min);
    if (first_) return known;
    std::memcpy(&known, given, std::min(size, sizeof(Struct)));
    if (size > sizeof(Struct)) {
      const auto* const bytes = reinterpret_cast<const unsigned char*>(given);
      newer_fields({bytes + sizeof(Struct), size - sizeof(Struct)});
    }
    return known;
  }

  /// A field that must not be null.
  void present(const char* field, bool given, const char* allowed) {
    if (!given) wrong(field, "null", allowed);
  }

  const std::optional<Error>& first() const { return first_; }

 private:
  const char* call_;
  std::string argument_;
  std::optional<Error> first_;
};

}  // namespace farandole::abi
