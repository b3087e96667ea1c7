// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "frontend/context_state.hpp"

namespace farandole {

/// The communicator's table of algorithm choices, made at the first call. The caller holds
/// plans_mutex.
PlanTable& choices_of(CommunicatorState& state);

/// The text of the file that FARANDOLE_TUNING names, which rank 0 publishes for all ranks; empty if
/// there is none.
///
/// Errors    kInvalidArgument naming the file and, if its content is not valid, the line.
Result<std::string> read_tuning_file();

/// Parses the text that rank 0 has read, into `planning`.
Result<void> adopt_tuning(std::string_view text, Planning& planning);

/// Key of that text in rank 0's member record.
inline constexpr const char* kTuningEntry = "planner.tuning";

}  // namespace farandole
