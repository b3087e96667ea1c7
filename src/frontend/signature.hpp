// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "frontend/call.hpp"

namespace farandole {

/// What this rank puts into the messages of a call. Ranks that agree have equal ones; ranks that
/// run different schedules differ, also if only an option tells them apart.
Signature signature_of(const Call& call, const Plan& plan);
Signature signature_of(const Message& message);

}  // namespace farandole
