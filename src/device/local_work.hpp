// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "farandole/types.hpp"
#include "reduce/reduce.hpp"

namespace farandole {

/// Work of an operation on the memory of its own rank. It goes element by element, so that it can
/// be cut into pieces. reduce/reduce.hpp says what each kind computes.
struct LocalWork {
  enum class Kind : std::uint8_t {
    kCopy,    // target = left
    kReduce,  // target = left (+) right, then divided by `divisor`
    kDivide,  // target = left / divisor
    kScale,   // target = left * factor
    kWiden,   // of integers of `dtype`, for an average over `divisor` ranks
    kNarrow,  // back to `dtype`
  };
  Kind kind = Kind::kCopy;
  bool to_memory = false;  // kCopy: the target leaves the caches before it is used
  DType dtype = DType::kUInt8;
  std::byte* target = nullptr;
  const std::byte* left = nullptr;
  const std::byte* right = nullptr;  // kReduce
  Count count;                       // elements
  ReduceKernel kernel = nullptr;     // kReduce
  std::size_t divisor = 1;
  double factor = 1;
};

/// The part of the work on elements [first, first + count).
LocalWork piece(const LocalWork& work, Count first, Count count);

/// Does the work at once, in host memory.
void run(const LocalWork& work);

}  // namespace farandole
