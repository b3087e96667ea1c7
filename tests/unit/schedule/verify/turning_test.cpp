// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/verify/turning.hpp"

#include <gtest/gtest.h>

#include <random>

namespace farandole {
namespace {

constexpr std::int64_t kRanks = 24, kLoop = 5;

std::int64_t floor_mod(std::int64_t a, std::int64_t b) {
  return (a % b + b) % b;
}
std::int64_t digit(std::int64_t x, std::int64_t stride, std::int64_t size) {
  return (x - floor_mod(x, stride)) / stride % size < 0
             ? (x - floor_mod(x, stride)) / stride % size + size
             : (x - floor_mod(x, stride)) / stride % size;
}
std::int64_t turned(std::int64_t x, std::int64_t stride, std::int64_t size) {
  const std::int64_t d = digit(x, stride, size);
  return x + ((d + 1) % size - d) * stride;
}

// Expressions of the kinds that algorithms use, and of many that they do not.
Expr random_expr(std::mt19937_64& random, int depth) {
  const auto below = [&random](std::uint64_t n) { return random() % n; };
  constexpr std::int64_t kConstants[] = {0, 1, 2, 3, 4, 6, 8, 12, 24, -1, 5, 48};
  if (depth == 0 || below(5) == 0) {
    switch (below(3)) {
      case 0:
        return Expr::rank();
      case 1:
        return Expr::loop(0);
      default:
        return Expr(kConstants[below(std::size(kConstants))]);
    }
  }
  const Expr a = random_expr(random, depth - 1);
  const Expr b = below(3) == 0 ? random_expr(random, depth - 1)
                               : Expr(kConstants[below(std::size(kConstants))]);
  switch (below(8)) {
    case 0:
    case 1:
      return a + b;
    case 2:
      return a - b;
    case 3:
      return a * b;
    case 4:
      return a / b;
    case 5:
      return a % b;
    case 6:
      return a ^ b;
    default:
      return min(a, b);
  }
}

// What `claim` says of f must hold at every rank and iteration.
void expect_true(const Turning& claim, const Expr& f, const Rotation& rotation) {
  for (std::int64_t r = 0; r < kRanks; ++r) {
    const std::int64_t next = turned(r, rotation.rank_stride, rotation.size);
    for (std::int64_t s = 0; s < kLoop; ++s) {
      const std::int64_t loops[] = {s};
      const std::int64_t before = f.evaluate(r, loops), after = f.evaluate(next, loops);
      switch (claim.kind) {
        case Turning::Kind::kFixed:
          ASSERT_EQ(after, before) << f.text();
          break;
        case Turning::Kind::kTurns:
          ASSERT_EQ(after, turned(before, claim.by, rotation.size)) << f.text();
          break;
        case Turning::Kind::kCongruent:
          if (claim.modulus == 0) {
            ASSERT_EQ(after, before + claim.by) << f.text();
          } else {
            ASSERT_EQ(floor_mod(after - before - claim.by, claim.modulus), 0) << f.text();
          }
          break;
        case Turning::Kind::kUnknown:
          break;
      }
    }
  }
}

// Goal: what is said of an expression holds for every rank and iteration.
// Method: random expressions over 24 ranks, each digit turned, compared with their values.
TEST(Turning, SaysOnlyWhatHolds) {
  constexpr std::uint64_t kSeed = 20261121;
  std::mt19937_64 random(kSeed);
  const Rotation rotations[] = {{24, 1}, {2, 1}, {3, 2}, {4, 6}, {2, 4}, {2, 12}, {12, 2}, {8, 1}};
  int said[4] = {};
  for (int i = 0; i < 6000; ++i) {
    const Expr f = random_expr(random, 3);
    for (const Rotation& rotation : rotations) {
      const std::int64_t loops[] = {kLoop};
      const TurningExpr read(f, rotation, kRanks, loops);
      const Turning claim = read.turning();
      ++said[static_cast<int>(claim.kind)];
      expect_true(claim, f, rotation);
      if (HasFatalFailure()) FAIL() << "seed " << kSeed << ", expression " << i;
      for (const std::int64_t modulus : {2, 6, 24}) {
        const auto [low, high] = read.residue(modulus);
        for (std::int64_t r = 0; r < kRanks; ++r) {
          for (std::int64_t s = 0; s < kLoop; ++s) {
            const std::int64_t at[] = {s};
            const std::int64_t value = f.evaluate(r, at);
            ASSERT_GE(floor_mod(value, modulus), low) << f.text();
            ASSERT_LE(floor_mod(value, modulus), high) << f.text();
            ASSERT_GE(value, read.range().low) << f.text();
            ASSERT_LE(value, read.range().high) << f.text();
          }
        }
      }
    }
  }
  for (const int count : said) EXPECT_GT(count, 500);  // each kind was put to the test
}

// Goal: the forms that algorithms are written in are understood, at any size.
TEST(Turning, UnderstandsDigits) {
  const Expr r = Expr::rank(), s = Expr::loop(0);
  const std::int64_t loops[] = {1000};
  const auto turns_by = [&](const Expr& f, Rotation rotation, std::int64_t ranks) {
    const Turning claim = TurningExpr(f, rotation, ranks, loops).turning();
    return claim.kind == Turning::Kind::kTurns ? claim.by : 0;
  };
  EXPECT_EQ(turns_by((r - s - 2) % 27'600, {27'600, 1}, 27'600), 1);
  // Position with the middle digit (size 8, stride 4) replaced, 4 x 8 x 32 ranks.
  const Expr d = r / 4 % 8;
  const Expr peer = r % 4 + (d + 1) % 8 * 4 + r / 32 * 32;
  EXPECT_EQ(turns_by(peer, {4, 1}, 1024), 1);
  EXPECT_EQ(turns_by(peer, {8, 4}, 1024), 4);
  EXPECT_EQ(turns_by(peer, {32, 32}, 1024), 32);
  // The block of chunks that belongs to digits d0 and d1: most significant first.
  const Expr block = r % 4 * 256 + (d - s) % 8 * 32;
  EXPECT_EQ(turns_by(block, {4, 1}, 1024), 256);
  EXPECT_EQ(turns_by(block, {8, 4}, 1024), 32);
  EXPECT_EQ(turns_by(r ^ 16, {2, 16}, 64), 16);
  EXPECT_EQ(turns_by(r ^ 16, {2, 4}, 64), 4);
}

}  // namespace
}  // namespace farandole
