// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>

#include "frontend/call.hpp"

namespace farandole {

/// The plan for a call whose buffers lie in the memory of `device`: from the communicator's table,
/// or built, proved, specialized and connected now. `kind`: kSchedule refuses delegates, for calls
/// that the library has changed.
///
/// Errors    kInvalidArgument: no such algorithm, or one that does not take the call. Else those of
///           verify(), connect() and Delegate::join().
/// Blocking  the first time, until this rank's peers have come.
Result<std::shared_ptr<Plan>> find_plan(const Call& call, CommunicatorState& state,
                                        std::string_view device,
                                        PlanTable::Kind kind = PlanTable::Kind::kAny);

/// Connects to ranks of the group, each named once, and waits for them at most `patience`.
///
/// Errors    those of Transport::connect(), or the death of a member that explains them.
Result<void> connect(const Group& group, Membership& membership, std::chrono::milliseconds patience,
                     std::span<const std::int64_t> peers);

}  // namespace farandole
