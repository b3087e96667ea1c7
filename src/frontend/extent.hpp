// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "farandole/types.hpp"

namespace farandole {

/// What a call asks of this rank's memory. The counts are 0 where a buffer is not used.
struct Extent {
  Count in, out;          // elements
  Count written;          // of `out`; a reduce may also write it on ranks that get no result
  Count in_place_offset;  // of the shorter buffer in the longer one, when in place
};

/// From the beginning of `out` to that of `in`, in bytes, if they share memory.
inline std::optional<std::int64_t> in_offset(const void* in, Bytes in_bytes, const void* out,
                                             Bytes out_bytes) {
  const auto in_begin = reinterpret_cast<std::uintptr_t>(in);
  const auto out_begin = reinterpret_cast<std::uintptr_t>(out);
  if (in_begin >= out_begin + out_bytes.value() || out_begin >= in_begin + in_bytes.value()) {
    return std::nullopt;
  }
  return static_cast<std::int64_t>(in_begin) - static_cast<std::int64_t>(out_begin);
}

}  // namespace farandole
