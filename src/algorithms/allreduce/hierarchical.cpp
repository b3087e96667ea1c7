// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "algorithms/hierarchy.hpp"
#include "algorithms/table.hpp"

namespace farandole {
namespace {

// Hierarchical allreduce, p = p1 p2 ... ph: reduce-scatter among p1 neighbours, then among p2
// groups of them on 1/p1 of the data, and so on outwards; all-gather back in reverse. With ring
// layers this is BlueConnect; one ring layer is `ring`, all layers of 2 are `rabenseifner`, step
// by step. Each layer has its kind: ring, halving or direct.
//
//   chunks   rank_count
//   rounds   2 (sum p_i - h) with rings; a direct layer takes 2, a halving one 2 lg p_i
//   sent     2 (rank_count - 1) / rank_count of the bytes, per rank: (p_i - 1) / (p1 ... p_i) of
//            them twice in layer i
//   scratch  none; works in place
//   needs    product of the layers = rank_count; halving: a power of two; direct: at most 1024.
//            Without layers: the prime factors of rank_count, smallest innermost, as rings
//   source   [Cho19], [Ueno19]
Schedule hierarchical_allreduce(const AlgorithmParameters& parameters) {
  const std::int64_t p = parameters.rank_count;
  ScheduleBuilder b(Collective::kAllreduce, "hierarchical", p, p);
  b.order(parameters.order);
  if (p == 1) {
    b.round().copy(out(0), in(0));
    return std::move(b).build();
  }
  const Place inputs = [](const Expr& first, std::int64_t block) { return in(first, block); };
  const Place sums = [](const Expr& first, std::int64_t block) { return out(first, block); };
  const std::vector<LayerRounds> levels =
      levels_of(p, parameters.layers.empty() ? default_layers(p) : parameters.layers);
  allreduce_in_layers(b, levels, inputs, sums);
  return std::move(b).build();
}

}  // namespace

constinit const AlgorithmInfo kAllreduceHierarchical = {
    Collective::kAllreduce,
    "hierarchical",
    "reduce-scatter layer by layer outwards, all-gather back; BlueConnect where layers are rings",
    "2(sum p_i - h)a + 2n sum b_i (p_i-1)/(p_1...p_i)",
    "[Cho19], [Ueno19]",
    "product of layers = rank_count; halving: a power of two; direct: at most 1024",
    "layers order",
    kRanksMax,
    &hierarchical_allreduce};

}  // namespace farandole
