// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "planner/formulas/formulas.hpp"

namespace farandole {
namespace {

// (p - 1) (a + n/p b), linear.
void gather_one_by_one(CostSheet& sheet) {
  sheet.stage("messages to the root");
  in_turn(sheet, sheet.share(), true, false);
}

void scatter_one_by_one(CostSheet& sheet) {
  sheet.stage("messages of the root");
  in_turn(sheet, sheet.share(), false, false);
}

// ceil(lg p) a + (p - 1)/p n b [Thakur05] §4.3, §4.4: the root's own messages, which no rank
// delays.
void gather_binomial(CostSheet& sheet) {
  sheet.stage("tree");
  growing_rounds(sheet, true);
}

void scatter_binomial(CostSheet& sheet) {
  sheet.stage("tree");
  growing_rounds(sheet, false);
}

// (p - 1) (a + n/p b) [Thakur05] §4.6.
void pairwise(CostSheet& sheet) {
  sheet.stage("exchanges");
  all_distances(sheet, sheet.share(), false);
}

// ceil(lg p) messages [Thakur05] §4.6. The k-th has all chunks whose distance has bit k set, about
// half of them. They are packed and unpacked, and all chunks are rotated before and after.
void bruck(CostSheet& sheet) {
  const std::int64_t p = sheet.ranks();
  sheet.stage("powers of two");
  double packed = 0;
  for (std::int64_t d = 1; d < p; d *= 2) {
    const std::int64_t tail = std::max<std::int64_t>(0, p % (2 * d) - d);
    const double each = static_cast<double>(p / (2 * d) * d + tail) * sheet.share();
    sheet.rounds(Pattern::rotate(d), 1, each);
    packed += each;
  }
  sheet.copies(2 * packed + 2 * sheet.bytes());
}

// a + (p - 1)/p n b.
void direct(CostSheet& sheet) {
  sheet.stage("exchange");
  sheet.rounds(Pattern::all(1, sheet.ranks()), 1, sheet.share());
}

// ceil(lg p) a [Hensgen88].
void dissemination(CostSheet& sheet) {
  sheet.stage("signals");
  for (std::int64_t d = 1; d < sheet.ranks(); d *= 2) sheet.rounds(Pattern::rotate(d), 1, 0);
}

constexpr std::array kRooted = {
    Formula{Collective::kGather, "direct", &gather_one_by_one},
    Formula{Collective::kGather, "binomial", &gather_binomial},
    Formula{Collective::kScatter, "direct", &scatter_one_by_one},
    Formula{Collective::kScatter, "binomial", &scatter_binomial},
};

constexpr std::array kExchanges = {
    Formula{Collective::kAlltoall, "pairwise", &pairwise},
    Formula{Collective::kAlltoall, "bruck", &bruck},
    Formula{Collective::kAlltoall, "direct", &direct},
    Formula{Collective::kBarrier, "dissemination", &dissemination},
};

}  // namespace

std::span<const Formula> rooted_formulas() {
  return kRooted;
}

std::span<const Formula> exchange_formulas() {
  return kExchanges;
}

}  // namespace farandole
