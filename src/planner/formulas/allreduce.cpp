// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "algorithms/hierarchy.hpp"
#include "algorithms/tree.hpp"
#include "planner/formulas/formulas.hpp"

namespace farandole {
namespace {

// 2 (p - 1) (a + n/p b) [Patarasuk09].
void ring(CostSheet& sheet) {
  const Pattern neighbours = Pattern::ring(1, sheet.ranks());
  const auto steps = static_cast<double>(sheet.ranks() - 1);
  sheet.stage("ring");
  sheet.rounds(neighbours, steps, sheet.share(), sheet.share());
  sheet.rounds(neighbours, steps, sheet.share());
}

// The same, with half of the data in each direction.
void ring_bidirectional(CostSheet& sheet) {
  const Pattern neighbours = Pattern::both_ways(1, sheet.ranks());
  const auto steps = static_cast<double>(sheet.ranks() - 1);
  const double each = sheet.share() / 2;
  sheet.stage("ring");
  sheet.rounds(neighbours, steps, each, sheet.share());
  sheet.rounds(neighbours, steps, each);
}

// floor(lg p) (a + n b) [Thakur05] §4.5, two rounds more if ranks fold: those that folded finish
// last.
void recursive_doubling(CostSheet& sheet) {
  const FoldedRanks fold(sheet.ranks());
  sheet.stage("exchanges");
  if (fold.extra > 0) sheet.rounds(fold_pattern(), 1, sheet.bytes(), sheet.bytes());
  for (std::int64_t bit = 1; bit < fold.positions; bit *= 2) {
    sheet.rounds(exchange_pattern(fold, bit), 1, sheet.bytes(), sheet.bytes());
  }
  if (fold.extra > 0) sheet.rounds(fold_pattern(), 1, sheet.bytes());
}

// 2 lg m a + 2 (m - 1)/m n b [Thakur05] §4.5, and 2 (a + n b) if ranks fold.
void rabenseifner(CostSheet& sheet) {
  const FoldedRanks fold(sheet.ranks());
  sheet.stage("halving");
  if (fold.extra > 0) sheet.rounds(fold_pattern(), 1, sheet.bytes(), sheet.bytes());
  halving_rounds(sheet, fold, sheet.bytes(), true);
  sheet.part("doubling");
  doubling_rounds(sheet, fold, sheet.bytes());
  if (fold.extra > 0) sheet.rounds(fold_pattern(), 1, sheet.bytes());
}

// 2 ceil(log_k p) levels of a + (k - 1) n b [Thakur05]; the last level may have fewer children.
void reduce_broadcast(CostSheet& sheet) {
  const std::int64_t asked = sheet.parameters().radix, radix = asked > 0 ? asked : kDefaultRadix;
  sheet.stage("reduce");
  tree_levels(sheet, sheet.ranks(), radix, true);
  sheet.part("broadcast");
  tree_levels(sheet, sheet.ranks(), radix, false);
}

void double_binary_tree(CostSheet& sheet) {
  sheet.stage("trees");
  double_tree_rounds(sheet, true, true);
}

// reduce(q, n) + allreduce of the leaders + broadcast(q, n) [Cho19].
void two_level(CostSheet& sheet) {
  std::vector<Layer> layers = sheet.parameters().layers;
  if (layers.empty()) layers = default_two_levels(sheet.ranks());
  const Layer node = layers.front();
  layers.erase(layers.begin());
  const std::int64_t radix = node.kind == Layer::Kind::kDirect ? node.size : 2;
  sheet.stage("reduce in the node");
  tree_levels(sheet, node.size, radix, true);
  layer_stages(sheet, layers, node.size, {});
  sheet.stage("broadcast in the node");
  tree_levels(sheet, node.size, radix, false);
}

// 2 a (sum p_i - h) + 2 n sum b_i (p_i - 1) / (p_1 ... p_i) [Cho19], [Ueno19].
void hierarchical(CostSheet& sheet) {
  layer_stages(sheet, layers_or_default(sheet.parameters()), 1, {});
}

// 2 a + 2 (p - 1)/p n b.
void direct(CostSheet& sheet) {
  const Pattern all = Pattern::all(1, sheet.ranks());
  const auto others = static_cast<double>(sheet.ranks() - 1);
  sheet.stage("reduce-scatter");
  sheet.rounds(all, 1, sheet.share(), others * sheet.share());
  sheet.part("all-gather");
  sheet.rounds(all, 1, sheet.share());
}

// a + (p - 1) n b; a rank copies its own input while messages arrive.
void one_shot(CostSheet& sheet) {
  const auto others = static_cast<double>(sheet.ranks() - 1);
  sheet.stage("exchange");
  sheet.rounds(Pattern::all(1, sheet.ranks()), 1, sheet.bytes(), others * sheet.bytes());
}

constexpr Collective kThis = Collective::kAllreduce;
constexpr std::array kFormulas = {
    Formula{kThis, "ring", &ring},
    Formula{kThis, "ring_bidirectional", &ring_bidirectional},
    Formula{kThis, "recursive_doubling", &recursive_doubling},
    Formula{kThis, "rabenseifner", &rabenseifner},
    Formula{kThis, "reduce_broadcast", &reduce_broadcast},
    Formula{kThis, "double_binary_tree", &double_binary_tree},
    Formula{kThis, "two_level", &two_level},
    Formula{kThis, "hierarchical", &hierarchical},
    Formula{kThis, "direct", &direct},
    Formula{kThis, "one_shot", &one_shot},
};

}  // namespace

std::span<const Formula> allreduce_formulas() {
  return kFormulas;
}

}  // namespace farandole
