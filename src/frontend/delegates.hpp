// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/operation.hpp"
#include "frontend/call.hpp"

namespace farandole {

/// Rows of the delegates that reach all ranks of the communicator.
std::vector<const AlgorithmInfo*> reachable_delegates(const CommunicatorState& state);

/// kInvalidArgument: the delegate `name` cannot run the call, whose buffers lie in the memory of
/// `device`.
Error unsuited_error(const Call& call, std::string_view device, const std::string& name);

/// The plan of calls that the delegate of `row` can run. Joins the delegate at the communicator's
/// first call.
///
/// Errors    kInvalidArgument if it does not reach all ranks; those of Delegate::join().
/// Blocking  the first time, as Delegate::join().
Result<std::shared_ptr<Plan>> make_delegate_plan(const AlgorithmInfo& row,
                                                 CommunicatorState& state);

/// An operation for the call, by the plan of a delegate.
std::shared_ptr<Operation> make_delegate_operation(const Call& call, const Plan& plan,
                                                   const CommunicatorState& state);

}  // namespace farandole
