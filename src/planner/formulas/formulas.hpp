// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "algorithms/registry.hpp"
#include "planner/cost.hpp"

namespace farandole {

/// The operations that formulas are written in: stages of rounds, whose costs are added up.
class CostSheet {
 public:
  CostSheet(Levels& levels, const AlgorithmParameters& parameters, double bytes)
      : levels_(levels), parameters_(parameters), bytes_(bytes) {}

  const AlgorithmParameters& parameters() const { return parameters_; }
  std::int64_t ranks() const { return parameters_.rank_count; }
  double bytes() const { return bytes_; }
  /// One rank's share of the bytes.
  double share() const { return bytes_ / static_cast<double>(ranks()); }
  Levels& levels() { return levels_; }

  /// Begins a stage: what follows is one library call.
  void stage(std::string name);
  /// Begins another row of the same stage.
  void part(std::string name) { name_ = std::move(name); }
  /// Which ranks have their first messages of the stage in rounds after its first one.
  enum class Newcomers : std::uint8_t { kNone, kReceivers, kSenders };
  /// `count` rounds of messages of `each` bytes, after which a rank reduces `reduced` bytes.
  void rounds(const Pattern& pattern, double count, double each, double reduced = 0,
              Newcomers newcomers = Newcomers::kNone);
  /// The same for rounds whose port loads are known: `messages` start-ups and `moved` bytes in all.
  void moves(const RoundCost& cost, double messages, double moved, double reduced);
  /// Adds what a stage's first message, of `bytes`, costs more than those that follow.
  void first_message(const Pattern& pattern, const RoundCost& cost, double bytes);
  /// Copies of so many bytes at every rank.
  void copies(double bytes);

  Cost finish() &&;

 private:
  CostStage& row(Hop hop);

  Levels& levels_;
  const AlgorithmParameters& parameters_;
  const double bytes_;
  std::string name_;
  double stage_seconds() const;

  bool is_begun_ = false;  // this stage has had messages
  std::size_t stage_begin_ = 0;
  Cost cost_;
};

/// One row for each row of the algorithm table.
struct Formula {
  Collective collective;
  std::string_view name;
  void (*evaluate)(CostSheet& sheet);
};

std::span<const Formula> allreduce_formulas();
std::span<const Formula> reduce_formulas();
std::span<const Formula> broadcast_formulas();
std::span<const Formula> reducescatter_formulas();
std::span<const Formula> allgather_formulas();
std::span<const Formula> rooted_formulas();    // gather and scatter
std::span<const Formula> exchange_formulas();  // alltoall and barrier

/// The largest power of two up to the number of ranks, and how many ranks there are beyond it.
struct FoldedRanks {
  std::int64_t positions, extra;
  explicit FoldedRanks(std::int64_t rank_count);
};

/// Pairs of neighbours that fold, or unfold.
inline Pattern fold_pattern() {
  return Pattern::pairs(1);
}
/// Exchanges between positions x and x ^ bit; if ranks fold, these are at most twice as far apart.
Pattern exchange_pattern(const FoldedRanks& fold, std::int64_t bit);

/// A k-nomial tree over every `size` ranks, once up or down. All parents of a level have equally
/// many children, except on the last level, where position 0 has the most; it waits for all of
/// them.
void tree_levels(CostSheet& sheet, std::int64_t size, std::int64_t radix, bool up);

/// m - 1 of m parts of `bytes` in rounds of halves, quarters, ..., nearest positions first; and in
/// reverse.
void halving_rounds(CostSheet& sheet, const FoldedRanks& fold, double bytes, bool reducing);
void doubling_rounds(CostSheet& sheet, const FoldedRanks& fold, double bytes);

/// Blocks of 1, 2, 4, ... shares, the last one of what is left of p - 1, between the root of a
/// binomial tree and its children: up to the root, nearest child first, or down, furthest child
/// first.
void growing_rounds(CostSheet& sheet, bool nearest_first);

/// Layers of a hierarchy, the innermost with all bytes; of every `inside` ranks the first takes
/// part.
struct LayerPasses {
  bool scatters = true, gathers = true;
};
void layer_stages(CostSheet& sheet, const std::vector<Layer>& layers, std::int64_t inside,
                  LayerPasses passes);
/// As given, or the defaults of hierarchical algorithms.
std::vector<Layer> layers_or_default(const AlgorithmParameters& parameters);

/// Two trees, up, down or both.
void double_tree_rounds(CostSheet& sheet, bool up, bool down);

/// A pipeline of `pieces` through all ranks in turn.
void chain_rounds(CostSheet& sheet, std::int64_t pieces, bool reducing);

/// One rank with every other rank in turn, messages of `each` bytes.
void in_turn(CostSheet& sheet, double each, bool up, bool reducing);

/// Every rank with the ranks 1, 2, ... p - 1 above it in turn.
void all_distances(CostSheet& sheet, double each, bool reducing);

}  // namespace farandole
