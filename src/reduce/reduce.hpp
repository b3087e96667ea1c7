// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "farandole/result.hpp"
#include "farandole/types.hpp"

namespace farandole {

/// target[i] = left[i] (+) right[i] for `count` elements. target may equal left or right; there is
/// no other overlap. No alignment is needed. 16-bit floats are widened to float32, reduced, and
/// rounded to nearest even once. min and max give NaN if either side is NaN, and -0 < +0. Every NaN
/// in a result is the same quiet NaN, and integers wrap. So equal inputs give equal bits, on
/// whichever side they are and whichever instructions the CPU has, as long as the calling threads
/// agree on the CPU's rounding and flush-to-zero modes.
using ReduceKernel = void (*)(std::byte* target, const std::byte* left, const std::byte* right,
                              Count count);

/// The kernel for this CPU (widest vector instructions found at start). kAverage and
/// kPremultipliedSum reduce as kSum; divide() and scale() do the rest.
/// On bool, sum, max and logical/bitwise or are "or"; product, min and and are "and". A byte that
/// is not 0 is true; results are 0 or 1.
///
/// Errors    kInvalidArgument: bitwise and logical reductions need bool or integers; min and max
///           are not defined on complex numbers; average needs numbers that are not bool; float8 is
///           not reduced.
Result<ReduceKernel> find_kernel(DType dtype, Reduction reduction);

/// target[i] = source[i] / divisor; integers round toward zero, bool counts as 0 or 1. target may
/// equal source, here and in scale().
void divide(std::byte* target, const std::byte* source, Count count, DType dtype,
            std::size_t divisor);

/// target[i] = source[i] * factor. Floats are computed in their own precision (float32 for 16-bit
/// ones), to which the factor is rounded first. Integers are computed in float64: results round
/// toward zero and wrap, and are 0 where the product is infinite or NaN.
void scale(std::byte* target, const std::byte* source, Count count, DType dtype, double factor);

/// How many int64 widen() makes of one integer of `dtype`, so that the sum over all ranks fits; 0
/// if `dtype` is no integer.
std::size_t wide_length(DType dtype);

/// For an average of integers that does not overflow: each rank widens its input, the results are
/// added up as int64, and the sums are narrowed. `source` is scaled by `factor` as in scale();
/// `divisor` is the number of ranks, at least 1, and the same in narrow(). [count] to [count,
/// wide_length].
void widen(std::byte* target, const std::byte* source, Count count, DType dtype,
           std::size_t divisor, double factor);

/// [count, wide_length] to [count]: divides the sums by `divisor`, rounding toward zero; with a
/// `factor` other than 1 multiplies them by factor / divisor, as scale() does.
void narrow(std::byte* target, const std::byte* source, Count count, DType dtype,
            std::size_t divisor, double factor);

}  // namespace farandole
