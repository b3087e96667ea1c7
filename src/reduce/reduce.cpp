// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "reduce/reduce.hpp"

#include <string>

#include "reduce/cpu/kernel_table.hpp"

namespace farandole {
namespace {

const KernelTable& kernels() {
  static const KernelTable& widest = *kernel_variants().back().kernels;
  return widest;
}

std::string allowed(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
    case Reduction::kProduct:
    case Reduction::kPremultipliedSum:
      return "all dtypes but float8, which is moved and never reduced";
    case Reduction::kMin:
    case Reduction::kMax:
      return "bool, integers and real floats of 16 bits or more";
    case Reduction::kAverage:
      return "integers, floats of 16 bits or more and complex numbers";
    default:
      return "bool and integers";
  }
}

}  // namespace

std::span<const KernelVariant> kernel_variants() {
#ifdef __x86_64__
  static constexpr KernelVariant kVariants[] = {
      {"baseline", &kBaselineKernels}, {"avx2", &kAvx2Kernels}, {"avx512", &kAvx512Kernels}};
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  return std::span(kVariants).first(avx512 ? 3 : avx2 ? 2 : 1);
#else
  static constexpr KernelVariant kVariants[] = {{"baseline", &kBaselineKernels}};
  return kVariants;
#endif
}

Result<ReduceKernel> find_kernel(DType dtype, Reduction reduction) {
  const ReduceKernel kernel =
      kernels().reduce[static_cast<std::size_t>(dtype)][static_cast<std::size_t>(reduction)];
  if (kernel != nullptr) return kernel;
  return Error{ErrorKind::kInvalidArgument, std::string(name(reduction)) + " is not defined on " +
                                                std::string(name(dtype)) + "; it takes " +
                                                allowed(reduction) + "."};
}

void divide(std::byte* target, const std::byte* source, Count count, DType dtype,
            std::size_t divisor) {
  kernels().divide[static_cast<std::size_t>(dtype)](target, source, count, divisor);
}

void scale(std::byte* target, const std::byte* source, Count count, DType dtype, double factor) {
  kernels().scale[static_cast<std::size_t>(dtype)](target, source, count, factor);
}

std::size_t wide_length(DType dtype) {
  if (kernels().widen[static_cast<std::size_t>(dtype)] == nullptr) return 0;
  return size_of(dtype) == Bytes{8} ? 2 : 1;
}

void widen(std::byte* target, const std::byte* source, Count count, DType dtype,
           std::size_t divisor, double factor) {
  kernels().widen[static_cast<std::size_t>(dtype)](target, source, count, divisor, factor);
}

void narrow(std::byte* target, const std::byte* source, Count count, DType dtype,
            std::size_t divisor, double factor) {
  kernels().narrow[static_cast<std::size_t>(dtype)](target, source, count, divisor, factor);
}

}  // namespace farandole
