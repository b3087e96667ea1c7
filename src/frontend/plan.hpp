// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "frontend/call.hpp"

namespace farandole {

/// The plan for a call: from the communicator's table, or built, proved, specialized and
/// connected now.
/// Errors    kInvalidArgument: no such algorithm, or one that cannot run chunks of different
///           lengths. Else those of verify() and connect().
/// Blocking  the first time, until this rank's peers have come.
Result<std::shared_ptr<Plan>> find_plan(const Call& call, CommunicatorState& state);

/// Connects to ranks of the group, each named once, and waits for them at most `patience`.
/// Errors    those of Transport::connect(), or the death of a member that explains them.
Result<void> connect(const Group& group, Membership& membership, std::chrono::milliseconds patience,
                     std::span<const std::int64_t> peers);

}  // namespace farandole
