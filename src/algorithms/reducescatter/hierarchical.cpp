// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "algorithms/hierarchy.hpp"
#include "algorithms/table.hpp"

namespace farandole {
namespace {

// Hierarchical reducescatter, p = p1 p2 ... ph: among neighbours first, then among ever more
// distant groups of them on ever less data. In a layer a rank sends every p_i-th chunk. Scratch
// numbers chunks so that these are adjacent, which saves sending them one by one.
//
//   chunks   rank_count, of which one is the output
//   rounds   sum p_i - h with rings, 1 for a direct layer, lg p_i for halving; p + 1 local ones
//            of one copy each
//   sent     (rank_count - 1) / rank_count of the input bytes, per rank
//   scratch  rank_count slots, so that every chunk is copied once more; works in place
//   needs    product of the layers = rank_count; halving: a power of two; direct: at most 1024.
//            Without layers: the prime factors of rank_count, smallest innermost, as rings
//   source   [Cho19], [Ueno19]
Schedule hierarchical_reducescatter(const AlgorithmParameters& parameters) {
  const std::int64_t p = parameters.rank_count;
  ScheduleBuilder b(Collective::kReducescatter, "hierarchical", p, p);
  if (p == 1) {
    b.round().copy(out(0), in(0));
    return std::move(b).build();
  }
  b.scratch_slots(p);
  const std::vector<LayerRounds> levels =
      levels_of(p, parameters.layers.empty() ? default_layers(p) : parameters.layers);
  b.loop(p, [&](const Expr& s) {
    const auto [chunk, slot] = chunk_and_slot(levels, s);
    b.round().copy(scratch(slot, 0), in(chunk));
  });
  for (const LayerRounds& level : levels) {
    b.rotation({level.size, level.stride, level.stride, level.block});
    begin_stage(b, level, "scatter");
    scatter_sums(b, level, slots(), slots());
  }
  b.round().copy(out(0), scratch(chunk_and_slot(levels, 0).slot, 0));
  return std::move(b).build();
}

}  // namespace

constinit const AlgorithmInfo kReducescatterHierarchical = {
    Collective::kReducescatter,
    "hierarchical",
    "layer by layer outwards",
    "(sum p_i - h)a + n sum b_i (p_i-1)/(p_1...p_i)",
    "[Cho19], [Ueno19]",
    "product of layers = rank_count; halving: a power of two; direct: at most 1024",
    "layers",
    kRanksMax,
    &hierarchical_reducescatter};

}  // namespace farandole
