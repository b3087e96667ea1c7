// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "farandole/types.hpp"

namespace farandole::testing {

/// Writes small integers, exact in every dtype, also after reducing 16 of them.
inline void fill_exact_period(std::byte* data, std::size_t count, DType dtype, Reduction reduction,
                              int rank) {
  const bool product = reduction == Reduction::kProduct;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t mixed = static_cast<std::size_t>(rank) * 5 + i * 3;
    const auto value = static_cast<std::uint8_t>(product ? 1 + mixed % 2 : mixed % 8);
    std::byte* at = data + i * size_of(dtype).value();
    std::memset(at, 0, size_of(dtype).value());
    switch (dtype) {
      case DType::kBool:
        *at = static_cast<std::byte>(value & 1);
        break;
      case DType::kFloat32:
      case DType::kComplex64: {
        const auto real = static_cast<float>(value);
        std::memcpy(at, &real, sizeof(real));
        break;
      }
      case DType::kFloat64:
      case DType::kComplex128: {
        const auto real = static_cast<double>(value);
        std::memcpy(at, &real, sizeof(real));
        break;
      }
      case DType::kBFloat16: {
        const auto real = static_cast<float>(value);
        std::uint32_t bits;
        std::memcpy(&bits, &real, sizeof(bits));
        const auto half = static_cast<std::uint16_t>(bits >> 16);
        std::memcpy(at, &half, sizeof(half));
        break;
      }
      case DType::kFloat16: {
        const auto half = static_cast<_Float16>(value);
        std::memcpy(at, &half, sizeof(half));
        break;
      }
      default:
        *at = static_cast<std::byte>(value);
        break;  // little-endian integers
    }
  }
}

}  // namespace farandole::testing
