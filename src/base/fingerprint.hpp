// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace farandole {

/// A hash of a list of words, the same on every rank; different lists very likely have different
/// ones. Source: FNV-1a (Fowler, Noll, Vo) on words instead of bytes; after each word the high bits
/// are folded into the low ones.
class Fingerprint {
 public:
  constexpr void add(std::uint64_t word) {
    value_ = (value_ ^ word) * 0x100000001b3;
    value_ ^= value_ >> 32;
  }
  constexpr void add(std::string_view text) {
    for (const char byte : text) add(static_cast<std::uint8_t>(byte));
  }

  constexpr std::uint64_t value() const { return value_; }
  constexpr std::uint16_t short_value() const {
    return static_cast<std::uint16_t>(value_ ^ value_ >> 16);
  }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325;
};

}  // namespace farandole
