// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "simulator/path_result.hpp"
#include "simulator/patterns.hpp"
#include "simulator/simulate.hpp"

namespace farandole {

/// Simulates one call with a clock per rank, round after round: the times of a round depend on the
/// clocks alone, by max and plus. A loop whose rounds do not depend on its counter is compiled
/// once. When two iterations in a row have each added the same time to the clocks of all ranks that
/// exchange messages in it, all later iterations will too.
///
/// Source    max-plus algebra: Baccelli, Cohen, Olsder, Quadrat 1992
/// Errors    see Simulator::run().
Result<PathResult> simulate_rounds(const Network& network, PatternTable& patterns,
                                   const SimulatedCall& call, const SimulationOptions& options);

}  // namespace farandole
