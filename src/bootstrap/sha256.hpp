// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace farandole {

using Digest = std::array<std::uint8_t, 32>;

/// SHA-256 (FIPS 180-4) of `message`.
Digest sha256(std::string_view message);

/// HMAC-SHA-256 (RFC 2104). Keys of any length.
Digest hmac_sha256(std::string_view key, std::string_view message);

/// Compares in a time that depends on the lengths alone, so that a wrong code tells nothing.
bool equal_in_constant_time(std::string_view a, std::string_view b);

inline std::string_view view(const Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

}  // namespace farandole
