// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "algorithms/hierarchy.hpp"
#include "algorithms/table.hpp"
#include "algorithms/tree.hpp"

namespace farandole {
namespace {

// Two-level allreduce: each node of q ranks reduces to its first rank, the leaders allreduce as the
// remaining layers say, and each leader broadcasts in its node. In the node, the leader and all
// others communicate directly if the first layer is direct, else over a binomial tree.
//
//   chunks   p / q, the number of leaders
//   rounds   2 ceil(lg q), or 2 if direct, and those of the leaders' layers: 2 (p / q - 1) for a
//            ring, 2 lg(p / q) for halving
//   sent     up to 2 (1 - q / p) + ceil(lg q) times the bytes, by the leaders
//   scratch  none; works in place
//   needs    product of the layers = rank_count, the first one the node. Without layers: the node's
//            size is the largest divisor of p up to its square root, and the leaders are a ring
//   source   baseline in [Cho19]
Schedule two_level_allreduce(const AlgorithmParameters& parameters) {
  const std::int64_t p = parameters.rank_count;
  std::vector<Layer> layers = parameters.layers.empty() ? default_two_levels(p) : parameters.layers;
  const std::int64_t q = layers[0].size, leaders = p / q;
  ScheduleBuilder b(Collective::kAllreduce, "two_level", p, leaders);
  b.order(parameters.order);
  if (p == 1) {
    b.round().copy(out(0), in(0));
    return std::move(b).build();
  }
  const Expr r = b.rank(), member = r % q;
  const std::int64_t radix = layers[0].kind == Layer::Kind::kDirect ? q : 2;
  const KnomialTree tree(q, radix, member,
                         [&](std::int64_t offset) { return r / q * q + (member + offset) % q; });
  const std::vector<std::int64_t> levels = tree.levels();
  if (q > 1) b.stage("reduce");
  for (auto d = levels.rbegin(); d != levels.rend(); ++d) {
    RoundBuilder round = b.round();
    tree.up(round, *d, leaders);
  }
  layers.erase(layers.begin());
  std::vector<LayerRounds> across = levels_of(p, layers, q);
  const Place sums = [](const Expr& first, std::int64_t block) { return out(first, block); };
  const Place inputs = [](const Expr& first, std::int64_t block) { return in(first, block); };
  for (LayerRounds& level : across) level.when = {{member, 0, 1}};
  allreduce_in_layers(b, across, inputs, sums);
  if (q > 1) b.stage("broadcast");
  for (const std::int64_t d : levels) {
    RoundBuilder round = b.round();
    tree.down(round, d, out(0, leaders), out(0, leaders));
  }
  return std::move(b).build();
}

}  // namespace

constinit const AlgorithmInfo kAllreduceTwoLevel = {
    Collective::kAllreduce,
    "two_level",
    "to one leader per node, among the leaders, back into the nodes",
    "2 lg q (a + nb) + 2(p/q-1)a + 2(1-q/p) nb",
    "baseline in [Cho19]",
    "product of layers = rank_count, the first the node; halving: a power of two",
    "layers order",
    kRanksMax,
    &two_level_allreduce};

}  // namespace farandole
