// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "frontend/context_state.hpp"

namespace farandole {

/// Makes the transports by which this rank reaches the others; the state owns them. Returns [size]
/// of them by world rank, null for this rank.
///
/// Errors    kUnsupported if FARANDOLE_TRANSPORT names one that does not reach a rank, and those of
///           the transports.
Result<std::vector<Transport*>> make_transports(ContextState& state);

/// Connects each transport with its peers, unless they are so many that plans connect when they
/// first need to.
///
/// Blocking  until the peers are connected.
Result<void> connect_early(ContextState& state, const std::vector<Transport*>& by_rank);

/// The machine that is assumed if none was described, with messages going as FARANDOLE_TRANSPORT
/// says. `cores`: of each host; 0: one per rank.
Machine assumed_machine(std::int64_t ranks_per_host, std::int64_t hosts, std::string_view transport,
                        std::int64_t cores = 0);

}  // namespace farandole
