// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "simulator/path_result.hpp"
#include "simulator/patterns.hpp"
#include "simulator/simulate.hpp"

namespace farandole {

/// One call by a clock per rank, round after round: what happens in a round depends on the clocks
/// alone, by max and plus. A loop whose rounds do not depend on its counter is written out once;
/// once an iteration adds to the clocks of all ranks that exchange messages in it the same time,
/// twice in a row, so will all that follow.
/// Source    max-plus algebra: Baccelli, Cohen, Olsder, Quadrat 1992
/// Errors    see Simulator::run().
Result<PathResult> simulate_rounds(const Network& network, PatternTable& patterns,
                                   const SimulatedCall& call, const SimulationOptions& options);

}  // namespace farandole
