// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "delegates/delegate.hpp"

namespace farandole {

DelegateRun::~DelegateRun() = default;
DelegateGroup::~DelegateGroup() = default;
Delegate::~Delegate() = default;

}  // namespace farandole
