// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/expr.hpp"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <random>

namespace farandole {
namespace {

constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

std::int64_t value_of(const Expr& expr, std::int64_t rank = 0) {
  return expr.evaluate(rank, std::array<std::int64_t, Expr::kLoopDepthMax>{10, 20, 30, 40});
}

// Goal: indices never leave [0, p) through a negative operand, as they would with C++'s `%`.
// Method: compare with the definitions a = b q + m, 0 <= m < |b|, and q = floor(a / b), for all
// small operands of both signs, both folded and evaluated.
TEST(Expr, ModuloIsEuclideanAndDivisionFloors) {
  const Expr r = Expr::rank();
  for (std::int64_t a = -20; a <= 20; ++a) {
    for (std::int64_t b = -7; b <= 7; ++b) {
      if (b == 0) continue;
      const std::int64_t rest = value_of(r % b, a), quotient = value_of(r / b, a);
      EXPECT_GE(rest, 0);
      EXPECT_LT(rest, std::abs(b));
      EXPECT_EQ((a - rest) % b, 0);
      const double exact = static_cast<double>(a) / static_cast<double>(b);
      EXPECT_LE(static_cast<double>(quotient), exact);
      EXPECT_GT(static_cast<double>(quotient) + 1, exact);
      EXPECT_EQ(Expr(a) % b, Expr(rest));
      EXPECT_EQ(Expr(a) / b, Expr(quotient));
    }
  }
}

// Goal: an expression from a hostile file has a value, whatever its operands.
// Method: the operands that trap or overflow in C++.
TEST(Expr, HasAValueForEveryOperand) {
  const Expr r = Expr::rank();
  EXPECT_EQ(value_of(r / 0, 5), 0);
  EXPECT_EQ(value_of(r % 0, 5), 0);
  EXPECT_EQ(value_of(r / -1, kMin), kMin);
  EXPECT_EQ(value_of(r % -1, kMin), 0);
  EXPECT_EQ(value_of(r + 1, kMax), kMin);
  EXPECT_EQ(value_of(r - 1, kMin), kMax);
  EXPECT_EQ(value_of(r * 2, kMax), -2);
  EXPECT_EQ(value_of(r % kMin, -1), kMax);
}

TEST(Expr, KnowsRanksLoopsAndTheOtherOperators) {
  const Expr r = Expr::rank(), s = Expr::loop(0), v = Expr::loop(3);
  EXPECT_EQ(value_of(r * s + v, 3), 70);
  EXPECT_EQ(value_of(r ^ 5, 3), 6);
  EXPECT_EQ(value_of(min(r, 2) - max(r, 9), 3), -7);
  EXPECT_TRUE((r + s).uses(Expr::Op::kRank));
  EXPECT_FALSE((r + 1).uses(Expr::Op::kLoop));
  EXPECT_TRUE((Expr(3) * 4).is_constant());
}

TEST(Expr, PrintsParenthesesOnlyWhereNeeded) {
  const Expr r = Expr::rank(), s = Expr::loop(0), t = Expr::loop(1);
  EXPECT_EQ(((r - s - 1) % 8).text(), "(r - s - 1) % 8");
  EXPECT_EQ((r - (s - t)).text(), "r - (s - t)");
  EXPECT_EQ((r * 2 + t / 3).text(), "r * 2 + t / 3");
  EXPECT_EQ(((r ^ 4) % 8).text(), "(r ^ 4) % 8");
  EXPECT_EQ(((r + 4) ^ 8).text(), "r + 4 ^ 8");
  EXPECT_EQ(min(r - 1, max(s, -2)).text(), "min(r - 1, max(s, -2))");
  EXPECT_EQ((r / (s / t)).text(), "r / (s / t)");
}

// Goal: specializing changes no value and leaves nothing of the rank.
// Method: random trees, at random ranks and counters.
TEST(Expr, SpecializedEqualsGeneralAtThatRank) {
  constexpr unsigned kSeed = 7;
  std::mt19937 random(kSeed);
  const auto below = [&](int limit) { return static_cast<int>(random() % unsigned(limit)); };
  for (int tree = 0; tree < 2000; ++tree) {
    std::vector<Expr> parts = {Expr::rank(), Expr::loop(below(4)), Expr(below(9) - 4)};
    for (int join = 0; join < 6; ++join) {
      const Expr a = parts[std::size_t(below(int(parts.size())))];
      const Expr b = parts[std::size_t(below(3))];
      const Expr joined[] = {a + b, a - b, a * b, a / b, a % b, a ^ b, min(a, b), max(a, b)};
      parts.push_back(joined[below(8)]);
    }
    const std::int64_t rank = below(12);
    const Expr special = parts.back().specialize(rank);
    EXPECT_EQ(value_of(special, -1), value_of(parts.back(), rank)) << parts.back().text();
    EXPECT_FALSE(special.uses(Expr::Op::kRank));
  }
}

}  // namespace
}  // namespace farandole
