// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "farandole/types.hpp"

// What the kernels should give, one element at a time and without bit tricks.
namespace farandole::reference {

using Data = std::vector<std::byte>;

/// Nothing where the pair is not defined.
std::optional<Data> reduce(DType dtype, Reduction reduction, const Data& left, const Data& right);
Data divide(DType dtype, const Data& source, std::size_t divisor);
Data scale(DType dtype, const Data& source, double factor);

/// `count` elements, different for every seed: ordinary numbers mixed with zeros of both signs,
/// subnormals, infinities, NaNs with payloads, extremes of the integers, odd truth values.
Data sample(DType dtype, std::size_t count, std::uint32_t seed);

double widen(DType sixteen_bit, std::uint16_t bits);
std::uint16_t narrow(DType sixteen_bit, double value);

}  // namespace farandole::reference
