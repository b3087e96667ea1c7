// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <variant>

#include "delegates/delegate.hpp"
#include "schedule/program.hpp"

namespace farandole {

/// How a communicator runs a collective: by a schedule specialized to this rank, which the engine
/// steps, or by a delegate that this rank has joined.
using Executable = std::variant<std::shared_ptr<const Program>, std::shared_ptr<DelegateGroup>>;

}  // namespace farandole
