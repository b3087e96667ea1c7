// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "frontend/call.hpp"

namespace farandole {

/// The signature that this rank puts into the messages of a call. Ranks that agree have equal ones.
/// Different schedules give different ones, even if they differ only in an option.
Signature signature_of(const Call& call, const Plan& plan);
Signature signature_of(const Message& message);

}  // namespace farandole
