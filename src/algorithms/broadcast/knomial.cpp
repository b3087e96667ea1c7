// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "algorithms/table.hpp"
#include "algorithms/tree.hpp"

namespace farandole {
namespace {

// K-nomial broadcast: on level j, the k^j ranks that have the message send it to k - 1 others each,
// at multiples of k^j above them, counted from the root.
//
//   chunks   1
//   rounds   ceil(log_k p), and a local one at the root where k > 2
//   sent     up to (k - 1) ceil(log_k p) times the bytes, by the root
//   scratch  none; works in place
//   needs    rank_count >= 1; radix 2 to 8, 4 by default; radix - 1 lanes
//   source   [Thakur05] §4.3, [Xin20] eq. 3
Schedule tree_broadcast(const char* name, std::int64_t radix,
                        const AlgorithmParameters& parameters) {
  const std::int64_t p = parameters.rank_count, root = parameters.root;
  ScheduleBuilder b(Collective::kBroadcast, name, p, 1);
  b.root(root);
  const Expr v = (b.rank() - root) % p;
  const auto tree = KnomialTree::over(p, radix, root);
  for (const std::int64_t d : tree.levels()) {
    RoundBuilder round = b.round();
    tree.down(round, d, d == 1 ? in(0) : out(0), out(0));
    // In place the copy would write what is being sent, so it follows the first level's sends.
    if (d > 1) continue;
    if (radix == 2) {
      round.then().copy(out(0), in(0));
    } else {
      b.round().when(v, 0, 1).copy(out(0), in(0));
    }
  }
  if (p == 1) b.round().copy(out(0), in(0));
  return std::move(b).build();
}

Schedule binomial_broadcast(const AlgorithmParameters& parameters) {
  return tree_broadcast("binomial", 2, parameters);
}

Schedule knomial_broadcast(const AlgorithmParameters& parameters) {
  return tree_broadcast("knomial", parameters.radix > 0 ? parameters.radix : kDefaultRadix,
                        parameters);
}

}  // namespace

constinit const AlgorithmInfo kBroadcastBinomial = {Collective::kBroadcast,
                                                    "binomial",
                                                    "a tree of radix 2; best for small messages",
                                                    "lg p (a + nb)",
                                                    "[Thakur05]",
                                                    "rank_count >= 1",
                                                    "",
                                                    kRanksMax,
                                                    &binomial_broadcast};

constinit const AlgorithmInfo kBroadcastKnomial = {
    Collective::kBroadcast,
    "knomial",
    "a tree of radix k; fewer levels, more messages at once",
    "log_k p (a + (k-1) nb)",
    "[Thakur05], [Xin20]",
    "rank_count >= 1",
    "radix",
    kRanksMax,
    &knomial_broadcast};

}  // namespace farandole
