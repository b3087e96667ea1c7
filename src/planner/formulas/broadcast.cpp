// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "algorithms/tree.hpp"
#include "planner/formulas/formulas.hpp"

namespace farandole {
namespace {

constexpr std::int64_t kDefaultPieces = 8;

// (p - 1) (a + n b) [Xin20] eq. 1.
void direct(CostSheet& sheet) {
  sheet.stage("messages of the root");
  in_turn(sheet, sheet.bytes(), false, false);
}

// (p - 1) (a + n b) [Xin20] eq. 2; in k pieces (k + p - 2) (a + n/k b), eq. 5.
void chain(CostSheet& sheet) {
  sheet.stage("chain");
  chain_rounds(sheet, 1, false);
}

void pipelined_chain(CostSheet& sheet) {
  const std::int64_t asked = sheet.parameters().chunks;
  sheet.stage("chain");
  chain_rounds(sheet, asked > 0 ? asked : kDefaultPieces, false);
}

// ceil(log_k p) levels of a + (k - 1) n b [Xin20] eq. 3; the last level may have fewer children.
void tree(CostSheet& sheet, std::int64_t radix) {
  sheet.stage("tree");
  tree_levels(sheet, sheet.ranks(), radix, false);
}

void binomial(CostSheet& sheet) {
  tree(sheet, 2);
}

void knomial(CostSheet& sheet) {
  const std::int64_t asked = sheet.parameters().radix;
  tree(sheet, asked > 0 ? asked : kDefaultRadix);
}

// (ceil(lg p) + p - 1) a + 2 (p - 1)/p n b [Thakur05] §4.3: the root finishes the scatter last, and
// all wait for it.
void scatter_allgather(CostSheet& sheet) {
  sheet.stage("scatter");
  growing_rounds(sheet, false);
  sheet.part("ring");
  sheet.rounds(Pattern::cycle(1, sheet.ranks()), static_cast<double>(sheet.ranks() - 1),
               sheet.share());
}

void double_binary_tree(CostSheet& sheet) {
  sheet.stage("trees");
  double_tree_rounds(sheet, false, true);
}

constexpr Collective kThis = Collective::kBroadcast;
constexpr std::array kFormulas = {
    Formula{kThis, "direct", &direct},
    Formula{kThis, "chain", &chain},
    Formula{kThis, "binomial", &binomial},
    Formula{kThis, "knomial", &knomial},
    Formula{kThis, "scatter_allgather", &scatter_allgather},
    Formula{kThis, "pipelined_chain", &pipelined_chain},
    Formula{kThis, "double_binary_tree", &double_binary_tree},
};

}  // namespace

std::span<const Formula> broadcast_formulas() {
  return kFormulas;
}

}  // namespace farandole
