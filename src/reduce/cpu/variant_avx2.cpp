// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "reduce/cpu/kernels.inc"

namespace farandole {

constexpr KernelTable kAvx2Kernels = make_kernels();

}  // namespace farandole
