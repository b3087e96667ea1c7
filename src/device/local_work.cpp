// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "device/local_work.hpp"

#include <algorithm>

#include "device/cpu/copy.hpp"

namespace farandole {
namespace {

// Bytes reduced before they are divided: few enough to be still in the first-level cache.
constexpr std::size_t kDividedBytes = 8 * 1024;

using Kind = LocalWork::Kind;

/// Bytes per element of the wider side of kWiden and kNarrow.
std::size_t wide_bytes(DType dtype) {
  return wide_length(dtype) * size_of(DType::kInt64).value();
}

void run_reduction(const LocalWork& work) {
  if (work.divisor == 1) return work.kernel(work.target, work.left, work.right, work.count);
  const std::size_t element = size_of(work.dtype).value();
  const std::size_t bytes = work.count.value() * element;
  for (std::size_t at = 0; at < bytes; at += kDividedBytes) {
    const Count count{std::min(bytes - at, kDividedBytes) / element};
    work.kernel(work.target + at, work.left + at, work.right + at, count);
    divide(work.target + at, work.target + at, count, work.dtype, work.divisor);
  }
}

}  // namespace

LocalWork piece(const LocalWork& work, Count first, Count count) {
  const std::size_t narrow = size_of(work.dtype).value();
  const std::size_t target = work.kind == Kind::kWiden ? wide_bytes(work.dtype) : narrow;
  const std::size_t source = work.kind == Kind::kNarrow ? wide_bytes(work.dtype) : narrow;
  LocalWork part = work;
  part.target += first.value() * target;
  part.left += first.value() * source;
  if (part.right != nullptr) part.right += first.value() * source;
  part.count = count;
  return part;
}

void run(const LocalWork& work) {
  switch (work.kind) {
    case Kind::kCopy: {
      const std::size_t bytes = (work.count * size_of(work.dtype)).value();
      if (work.left == work.target) return;
      return (work.to_memory ? copy_to_memory : copy_bytes)(work.target, work.left, bytes);
    }
    case Kind::kReduce:
      return run_reduction(work);
    case Kind::kDivide:
      return divide(work.target, work.left, work.count, work.dtype, work.divisor);
    case Kind::kScale:
      return scale(work.target, work.left, work.count, work.dtype, work.factor);
    case Kind::kWiden:
      return widen(work.target, work.left, work.count, work.dtype, work.divisor, work.factor);
    case Kind::kNarrow:
      return narrow(work.target, work.left, work.count, work.dtype, work.divisor, work.factor);
  }
}

}  // namespace farandole
