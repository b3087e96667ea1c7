// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "frontend/context_state.hpp"

namespace farandole {

/// Makes the transports by which this rank reaches the others, which the state owns.
/// [size] by world rank, none for this rank.
/// Errors    kUnsupported if FARANDOLE_TRANSPORT names one that does not reach a rank, and those of
///           the transports.
Result<std::vector<Transport*>> make_transports(ContextState& state);

/// Connects with all ranks, unless they are so many that this is left to the plans that need them.
/// Blocks.
Result<void> connect_early(ContextState& state, const std::vector<Transport*>& by_rank);

/// What is assumed of hosts that nobody has described, where messages go as FARANDOLE_TRANSPORT
/// says. `cores`: of each host; 0: one per rank.
Machine assumed_machine(std::int64_t ranks_per_host, std::int64_t hosts, std::string_view transport,
                        std::int64_t cores = 0);

}  // namespace farandole
