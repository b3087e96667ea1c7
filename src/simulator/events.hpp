// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "simulator/path_result.hpp"
#include "simulator/simulate.hpp"

namespace farandole {

/// Any number of calls at once, event by event: every rank steps through its rounds, and rates
/// change whenever a message begins or ends. Events that fall on one moment are taken together.
/// Errors    see Simulator::run().
Result<PathResult> simulate_events(const Network& network, std::span<const SimulatedCall> calls,
                                   const SimulationOptions& options);

}  // namespace farandole
