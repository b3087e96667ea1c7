// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "algorithms/tree.hpp"
#include "planner/formulas/formulas.hpp"

namespace farandole {
namespace {

constexpr std::int64_t kDefaultPieces = 8;

// (p - 1) (a + n b).
void direct(CostSheet& sheet) {
  sheet.stage("messages to the root");
  in_turn(sheet, sheet.bytes(), true, true);
}

// (p - 1) (a + n b), backwards [Xin20] eq. 2; in k pieces (k + p - 2) (a + n/k b), eq. 5.
void chain(CostSheet& sheet) {
  sheet.stage("chain");
  chain_rounds(sheet, 1, true);
}

void pipelined_chain(CostSheet& sheet) {
  const std::int64_t asked = sheet.parameters().chunks;
  sheet.stage("chain");
  chain_rounds(sheet, asked > 0 ? asked : kDefaultPieces, true);
}

// ceil(log_k p) levels of a + (k - 1) n b [Thakur05]; the last level may have fewer children.
void tree(CostSheet& sheet, std::int64_t radix) {
  sheet.stage("tree");
  tree_levels(sheet, sheet.ranks(), radix, true);
}

void binomial(CostSheet& sheet) {
  tree(sheet, 2);
}

void knomial(CostSheet& sheet) {
  const std::int64_t asked = sheet.parameters().radix;
  tree(sheet, asked > 0 ? asked : kDefaultRadix);
}

// 2 lg m a + 2 (m - 1)/m n b [Thakur05] §4.4, and a + n b if ranks fold.
void rabenseifner(CostSheet& sheet) {
  const FoldedRanks fold(sheet.ranks());
  sheet.stage("halving");
  if (fold.extra > 0) sheet.rounds(fold_pattern(), 1, sheet.bytes(), sheet.bytes());
  halving_rounds(sheet, fold, sheet.bytes(), true);
  sheet.part("gather");
  // Position 0 receives what the position d above it has, for d = m / 2, m / 4, ... 1.
  double each = sheet.bytes() / static_cast<double>(fold.positions);
  for (std::int64_t d = fold.positions / 2; d >= 1; d /= 2, each *= 2) {
    const std::int64_t apart = exchange_pattern(fold, d).stride;
    sheet.rounds(Pattern::fan(apart, 2, apart), 1, each);
  }
}

void double_binary_tree(CostSheet& sheet) {
  sheet.stage("trees");
  double_tree_rounds(sheet, true, false);
}

constexpr Collective kThis = Collective::kReduce;
constexpr std::array kFormulas = {
    Formula{kThis, "direct", &direct},
    Formula{kThis, "chain", &chain},
    Formula{kThis, "binomial", &binomial},
    Formula{kThis, "knomial", &knomial},
    Formula{kThis, "rabenseifner", &rabenseifner},
    Formula{kThis, "pipelined_chain", &pipelined_chain},
    Formula{kThis, "double_binary_tree", &double_binary_tree},
};

}  // namespace

std::span<const Formula> reduce_formulas() {
  return kFormulas;
}

}  // namespace farandole
