// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "simulator/path_result.hpp"
#include "simulator/simulate.hpp"

namespace farandole {

/// Simulates any number of concurrent calls, event by event: every rank steps through its rounds,
/// and rates change whenever a message begins or ends. Events at the same moment are taken
/// together.
///
/// Errors    see Simulator::run().
Result<PathResult> simulate_events(const Network& network, std::span<const SimulatedCall> calls,
                                   const SimulationOptions& options);

}  // namespace farandole
