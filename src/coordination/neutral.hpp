// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "farandole/types.hpp"

namespace farandole {

/// Fills [count] elements with the value that leaves others unchanged: 0 for sums and averages,
/// 1 for products, the largest or lowest value (of floats: infinity) for min and max, all ones
/// for bitwise and. `reduction` is defined for `dtype`.
void fill_neutral(std::byte* data, Count count, DType dtype, Reduction reduction);

}  // namespace farandole
