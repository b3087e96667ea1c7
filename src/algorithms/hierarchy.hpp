// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "algorithms/registry.hpp"
#include "schedule/builder.hpp"

namespace farandole {

/// One layer as the rounds see it. Positions are numbers with one digit per layer, the innermost
/// layer's least significant: a layer connects positions that differ only in its digit, which are
/// `stride` apart. Chunks are numbered the other way round, with the innermost layer's digit most
/// significant, so that what a position keeps after each layer is `block` adjacent chunks.
struct LayerRounds {
  Layer::Kind kind = Layer::Kind::kRing;  // kRing or kDirect
  std::int64_t size = 2, stride = 1, block = 1;
  std::int64_t rank_count = 2;
  Expr base;                   // first chunk of what the layers inside this one leave here
  std::vector<Guard> when;     // which ranks take part
  int layer = 1;               // the number of the layer that this is, or is a part of
  std::int64_t ring_size = 0;  // of that layer, if it is a ring

  Expr digit(const Expr& position = Expr::rank()) const;
  /// The position with this digit here and with all other digits those of this rank.
  Expr peer(const Expr& digit) const;
  /// First chunk of the block that the position with this digit keeps.
  Expr first(const Expr& digit) const { return base + digit * block; }
};

/// The levels of these layers. Sizes of 1 are left out, and a halving layer of 2^k becomes k layers
/// of 2, which is the same: neighbours exchange halves, then those 2 apart exchange quarters.
/// `inside` ranks share the first layer's position.
std::vector<LayerRounds> levels_of(std::int64_t rank_count, const std::vector<Layer>& layers,
                                   std::int64_t inside = 1);

/// Prime factors in rising order, as rings: of all hierarchies the one with the fewest rounds.
std::vector<Layer> default_layers(std::int64_t rank_count);

/// A node and its leaders: the node's size is the largest divisor of rank_count up to its square
/// root.
std::vector<Layer> default_two_levels(std::int64_t rank_count);

/// Begins the stage in which the level's layer scatters ("scatter_1") or gathers ("gather_1").
void begin_stage(ScheduleBuilder& b, const LayerRounds& level, const char* what);

/// Where `block` chunks from `first` on lie.
using Place = std::function<Span(const Expr& first, std::int64_t block)>;

/// Adds the rounds that reduce-scatter over one level: sums up what is in `source`. Each position
/// ends with its block in `target`, whose other blocks are overwritten on the way.
void scatter_sums(ScheduleBuilder& b, const LayerRounds& level, const Place& source,
                  const Place& target);

/// Adds the rounds that all-gather over one level, the inverse of scatter_sums().
void gather_blocks(ScheduleBuilder& b, const LayerRounds& level, const Place& place);

/// Adds the rounds of an allreduce over all levels. The innermost level reads from `inputs`; all
/// else is in `sums`. The last layer gathers directly after it has scattered: that is one stage, an
/// allreduce in a layer ("allreduce_2"), as a flat ring is.
void allreduce_in_layers(ScheduleBuilder& b, const std::vector<LayerRounds>& levels,
                         const Place& inputs, const Place& sums);

/// Slots of scratch as a place; for collectives whose chunks are all equally long.
Place slots();

/// A rank's chunk, and the slot that it has in the numbering of these levels. The rank is the one
/// whose digits are those of this rank plus those of `offset`, so that as `offset` counts up, every
/// rank goes through all ranks in the same way, starting with itself.
struct ChunkAndSlot {
  Expr chunk, slot;
};
ChunkAndSlot chunk_and_slot(const std::vector<LayerRounds>& levels, const Expr& offset);

}  // namespace farandole
