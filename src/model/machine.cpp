// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "model/machine.hpp"

namespace farandole {

Result<void> check(const Machine& machine) {
  (void)machine;
  return {};
}

}  // namespace farandole
