// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "planner/formulas/formulas.hpp"

namespace farandole {
namespace {

// (p - 1) (a + n/p b) [Patarasuk09].
void ring(CostSheet& sheet) {
  sheet.stage("ring");
  sheet.rounds(Pattern::ring(1, sheet.ranks()), static_cast<double>(sheet.ranks() - 1),
               sheet.share(), sheet.share());
}

// lg p a + (p - 1)/p n b [Thakur05] §4.2. If ranks fold, the positions below `extra` stand for two
// chunks each, and position 0 has the most of them in every exchange; folding adds a + n b before
// and a + n/p b after.
void halving(CostSheet& sheet) {
  const FoldedRanks fold(sheet.ranks());
  sheet.stage("halving");
  if (fold.extra > 0) sheet.rounds(fold_pattern(), 1, sheet.bytes(), sheet.bytes());
  for (std::int64_t d = fold.positions / 2; d >= 1; d /= 2) {
    const auto chunks = static_cast<double>(d + std::min(d, fold.extra));
    const double each = chunks * sheet.share();
    sheet.rounds(exchange_pattern(fold, d), 1, each, each);
  }
  if (fold.extra > 0) sheet.rounds(fold_pattern(), 1, sheet.share());
}

// (p - 1) (a + n/p b) [Thakur05] §4.2.
void pairwise(CostSheet& sheet) {
  sheet.stage("exchanges");
  all_distances(sheet, sheet.share(), true);
}

// a (sum p_i - h) + n sum b_i (p_i - 1) / (p_1 ... p_i), half of [Cho19]'s; n is copied before.
void hierarchical(CostSheet& sheet) {
  layer_stages(sheet, layers_or_default(sheet.parameters()), 1, {.gathers = false});
  sheet.copies(sheet.bytes() + sheet.share());
}

// a + (p - 1)/p n b.
void direct(CostSheet& sheet) {
  const double received = static_cast<double>(sheet.ranks() - 1) * sheet.share();
  sheet.stage("reduce-scatter");
  sheet.rounds(Pattern::all(1, sheet.ranks()), 1, sheet.share(), received);
}

constexpr Collective kThis = Collective::kReducescatter;
constexpr std::array kFormulas = {
    Formula{kThis, "ring", &ring},         Formula{kThis, "halving", &halving},
    Formula{kThis, "pairwise", &pairwise}, Formula{kThis, "hierarchical", &hierarchical},
    Formula{kThis, "direct", &direct},
};

}  // namespace

std::span<const Formula> reducescatter_formulas() {
  return kFormulas;
}

}  // namespace farandole
