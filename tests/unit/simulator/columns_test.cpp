// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "simulator/columns.hpp"

#include <gtest/gtest.h>

#include <random>

namespace farandole {
namespace {

constexpr std::int64_t kLow = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kHigh = std::numeric_limits<std::int64_t>::max();

Expr random_expr(std::mt19937& random, int depth) {
  using Op = Expr::Op;
  if (depth == 0 || random() % 5 == 0) {
    constexpr std::int64_t kNumbers[] = {0, 1, -1, 2, 3, -4, 7, 8, 64, 1000, 1 << 30, kLow, kHigh};
    switch (random() % 3) {
      case 0:
        return Expr::rank();
      case 1:
        return Expr::loop(static_cast<int>(random() % 2));
      default:
        return kNumbers[random() % std::size(kNumbers)];
    }
  }
  const Expr a = random_expr(random, depth - 1), b = random_expr(random, depth - 1);
  constexpr Op kOps[] = {Op::kAdd,    Op::kSubtract, Op::kMultiply, Op::kDivide,
                         Op::kModulo, Op::kXor,      Op::kMin,      Op::kMax};
  std::vector<Expr::Node> nodes = a.nodes();
  nodes.insert(nodes.end(), b.nodes().begin(), b.nodes().end());
  nodes.push_back({kOps[random() % std::size(kOps)], 0});
  return Expr::from_nodes(std::move(nodes));
}

// Goal: evaluating for many ranks at once is evaluating for each.
// Method: random expressions over numbers at the edges of what they hold.
TEST(Columns, AreWhatExpressionsAreRankByRank) {
  std::mt19937 random(11);
  const std::vector<std::int32_t> ranks = {0, 1, 2, 3, 7, 8, 63, 64, 1000, 27599};
  Columns columns;
  for (int round = 0; round < 20'000; ++round) {
    const Expr expr = random_expr(random, 4);
    const std::int64_t loops[] = {static_cast<std::int64_t>(random() % 100), 5};
    const auto values = columns.evaluate(expr, ranks, loops);
    ASSERT_EQ(values.size(), ranks.size());
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      ASSERT_EQ(values[i], expr.evaluate(ranks[i], loops)) << expr.text() << " r=" << ranks[i];
    }
  }
}

}  // namespace
}  // namespace farandole
