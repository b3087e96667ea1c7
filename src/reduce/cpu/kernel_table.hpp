// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "farandole/types.hpp"
#include "reduce/reduce.hpp"

namespace farandole {

using DivideKernel = void (*)(std::byte* target, const std::byte* source, Count count,
                              std::size_t divisor);
using ScaleKernel = void (*)(std::byte* target, const std::byte* source, Count count,
                             double factor);
using AverageKernel = void (*)(std::byte* target, const std::byte* source, Count count,
                               std::size_t divisor, double factor);

/// Every kernel, compiled for one instruction set; null where the pair is not defined.
struct KernelTable {
  ReduceKernel reduce[kDTypeCount][kReductionCount] = {};
  DivideKernel divide[kDTypeCount] = {};
  ScaleKernel scale[kDTypeCount] = {};
  AverageKernel widen[kDTypeCount] = {};   // of integers
  AverageKernel narrow[kDTypeCount] = {};  // of integers
};

// kernels.inc, compiled three times with the flags in variants.cmake.
extern const KernelTable kBaselineKernels;
extern const KernelTable kAvx2Kernels;    // x86-64 only
extern const KernelTable kAvx512Kernels;  // x86-64 only

struct KernelVariant {
  std::string_view name;  // "baseline", "avx2", "avx512"
  const KernelTable* kernels;
};

/// The variants that this CPU can run, the widest vectors last. All give the same bits.
std::span<const KernelVariant> kernel_variants();

}  // namespace farandole
