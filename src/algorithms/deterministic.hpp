// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "algorithms/registry.hpp"

namespace farandole {

/// The schedule that replaces an algorithm when results must not depend on the choice of the
/// algorithm: for every algorithm, each chunk is ((x0 + x1) + x2) + ... in the order of the ranks.
///
/// Inputs travel unsummed, so partial sums save no bytes:
///   allreduce      pairwise exchange, so that rank j has every rank's chunk j; sum; then gathered
///                  around a ring, over doubling distances, or directly, as in the algorithm.
///                  2 (p - 1) a + 2 (p - 1)/p nb with the ring, as usual; scratch for n bytes.
///                  Algorithms for small messages exchange all inputs and sum everywhere instead:
///                  (p - 1)(a + nb), and scratch for p n bytes.
///   reducescatter  the exchange and the sum only.
///   reduce         chain, binomial, knomial and direct become direct, which keeps this order; for
///                  the others the exchange, the sum, and each rank's chunk to the root.
/// The sum itself is p - 1 local rounds. Beyond kExchangeRanksMax ranks, p messages per rank are
/// too many: allreduce and reduce then go down a pipelined chain in the order of the ranks, and
/// back, 2 (p - 2 + m) a + 2 nb with m = 16 pieces; reducescatter is refused. Options of the
/// algorithm have no effect.
inline constexpr std::int64_t kExchangeRanksMax = 512;
Schedule build_deterministic(const AlgorithmInfo& algorithm, std::int64_t rank_count,
                             std::int64_t root);

}  // namespace farandole
