// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "algorithms/registry.hpp"

namespace farandole {

/// The schedule that stands for an algorithm when results must not depend on the choice of the
/// algorithm: every chunk is ((x0 + x1) + x2) + ... in the order of the ranks, for each of them.
///
/// What is summed travels as it was given, so partial sums save no bytes:
///   allreduce      pairwise exchange, so that rank j has every rank's chunk j; sum; then gathered
///                  around a ring, over doubling distances, or directly, as the algorithm would.
///                  2 (p - 1) a + 2 (p - 1)/p nb with the ring, as before; scratch for n bytes.
///                  Algorithms for small messages swap all inputs instead and sum everywhere:
///                  (p - 1)(a + nb), and scratch for p n bytes.
///   reducescatter  the exchange and the sum alone.
///   reduce         trees and chains become the direct one, which keeps this order; the others the
///                  exchange, the sum, and each rank's chunk to the root.
/// The sum itself is p - 1 local rounds. Beyond kExchangeRanksMax ranks p messages per rank are too
/// many, and allreduce and reduce go down a pipelined chain in the order of the ranks, and back:
/// 2 (p - 2 + m) a + 2 nb with m = 16 pieces; reducescatter is refused there.
/// Options of the algorithm have no effect.
inline constexpr std::int64_t kExchangeRanksMax = 512;
Schedule build_deterministic(const AlgorithmInfo& algorithm, std::int64_t rank_count,
                             std::int64_t root);

}  // namespace farandole
