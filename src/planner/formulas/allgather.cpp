// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "planner/formulas/formulas.hpp"

namespace farandole {
namespace {

// (p - 1) (a + n/p b) [Thakur05] §4.1.
void ring(CostSheet& sheet) {
  sheet.stage("ring");
  sheet.rounds(Pattern::ring(1, sheet.ranks()), static_cast<double>(sheet.ranks() - 1),
               sheet.share());
  sheet.copies(sheet.share());
}

// ceil(lg p) a + (p - 1)/p n b [Thakur05] §4.1; n is copied at the end.
void bruck(CostSheet& sheet) {
  sheet.stage("doubling");
  for (std::int64_t d = 1; d < sheet.ranks(); d *= 2) {
    const auto chunks = static_cast<double>(std::min(d, sheet.ranks() - d));
    sheet.rounds(Pattern::rotate(d), 1, chunks * sheet.share());
  }
  sheet.copies(sheet.bytes() + sheet.share());
}

// a (sum p_i - h) + n sum b_i (p_i - 1) / (p_1 ... p_i), half of [Cho19]'s; n is copied at the end.
void hierarchical(CostSheet& sheet) {
  layer_stages(sheet, layers_or_default(sheet.parameters()), 1, {.scatters = false});
  sheet.copies(sheet.bytes() + sheet.share());
}

// a + (p - 1)/p n b.
void direct(CostSheet& sheet) {
  sheet.stage("all-gather");
  sheet.rounds(Pattern::all(1, sheet.ranks()), 1, sheet.share());
  sheet.copies(sheet.share());
}

constexpr Collective kThis = Collective::kAllgather;
constexpr std::array kFormulas = {
    Formula{kThis, "ring", &ring},
    Formula{kThis, "bruck", &bruck},
    Formula{kThis, "hierarchical", &hierarchical},
    Formula{kThis, "direct", &direct},
};

}  // namespace

std::span<const Formula> allgather_formulas() {
  return kFormulas;
}

}  // namespace farandole
