// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "frontend/context_state.hpp"

namespace farandole {

/// The communicator's table of choices, made when it is first asked for. Needs plans_mutex.
PlanTable& choices_of(CommunicatorState& state);

/// What rank 0 publishes for all: the text of the file that FARANDOLE_TUNING names; empty if none.
/// Errors    kInvalidArgument naming the file and, where it makes no sense, the line.
Result<std::string> read_tuning_file();

/// Takes over the text that rank 0 has read.
Result<void> adopt_tuning(std::string_view text, Planning& planning);

/// The entry of the control plane under which it travels.
inline constexpr const char* kTuningEntry = "planner.tuning";

}  // namespace farandole
