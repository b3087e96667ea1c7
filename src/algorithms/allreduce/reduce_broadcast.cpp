// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "algorithms/table.hpp"
#include "algorithms/tree.hpp"

namespace farandole {
namespace {

// Reduce and broadcast: the sum climbs a k-nomial tree to rank 0 and comes down again.
//
//   chunks   1
//   rounds   2 ceil(log_k p)
//   sent     once the bytes per rank upwards, up to (k - 1) ceil(log_k p) times downwards
//   scratch  none; works in place
//   needs    rank_count >= 1; radix 2 to 8, 4 by default; radix - 1 lanes
//   source   [Thakur05]
Schedule reduce_broadcast_allreduce(const AlgorithmParameters& parameters) {
  const std::int64_t p = parameters.rank_count;
  ScheduleBuilder b(Collective::kAllreduce, "reduce_broadcast", p, 1);
  if (p == 1) {
    b.round().copy(out(0), in(0));
    return std::move(b).build();
  }
  const auto tree =
      KnomialTree::over(p, parameters.radix > 0 ? parameters.radix : kDefaultRadix, 0);
  const std::vector<std::int64_t> levels = tree.levels();
  for (auto d = levels.rbegin(); d != levels.rend(); ++d) {
    RoundBuilder round = b.round();
    tree.up(round, *d, 1);
  }
  for (const std::int64_t d : levels) {
    RoundBuilder round = b.round();
    tree.down(round, d, out(0), out(0));
  }
  return std::move(b).build();
}

}  // namespace

constinit const AlgorithmInfo kAllreduceReduceBroadcast = {
    Collective::kAllreduce,
    "reduce_broadcast",
    "up a tree and down again; for small messages over many ranks",
    "2 log_k p (a + nb)",
    "[Thakur05]",
    "rank_count >= 1",
    "radix",
    kRanksMax,
    &reduce_broadcast_allreduce};

}  // namespace farandole
