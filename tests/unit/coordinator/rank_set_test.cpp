// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "coordinator/rank_set.hpp"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace farandole::coordinator {
namespace {

RankSet of(std::initializer_list<std::int32_t> ranks) {
  RankSet set;
  for (const std::int32_t rank : ranks) set.add(rank);
  return set;
}

std::set<std::int32_t> plain(const RankSet& set) {
  std::set<std::int32_t> ranks;
  std::int32_t before = -2;
  for (const RankSet::Run& run : set.runs()) {
    EXPECT_LT(before + 1, run.first) << "two runs that touch";
    EXPECT_LE(run.first, run.last);
    for (std::int32_t rank = run.first; rank <= run.last; ++rank) ranks.insert(rank);
    before = run.last;
  }
  return ranks;
}

// Goal: a set of runs is a set of ranks.
// Method: random operations beside std::set.
TEST(RankSet, IsASet) {
  constexpr std::int32_t kRanks = 24;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const auto draw = [&] { return static_cast<std::int32_t>(random() % kRanks); };
    RankSet a, b;
    std::set<std::int32_t> x, y;
    for (std::int32_t left = draw(); left > 0; --left) {
      const std::int32_t rank = draw(), first = draw(), last = std::min(kRanks - 1, first + 3);
      a.add(rank);
      x.insert(rank);
      b.add(RankSet::Run{first, last});
      for (std::int32_t r = first; r <= last; ++r) y.insert(r);
    }
    ASSERT_EQ(plain(a), x);
    ASSERT_EQ(plain(b), y);
    std::set<std::int32_t> difference;
    std::set_difference(x.begin(), x.end(), y.begin(), y.end(),
                        std::inserter(difference, difference.end()));
    ASSERT_EQ(plain(a.minus(b)), difference);
    ASSERT_EQ(a.without(kRanks).count(), kRanks - a.count());
    RankSet both = a;
    both.add(b);
    for (std::int32_t rank = 0; rank < kRanks; ++rank) {
      ASSERT_EQ(a.contains(rank), x.contains(rank));
      ASSERT_EQ(both.contains(rank), x.contains(rank) || y.contains(rank));
    }
    ASSERT_EQ(both.count(), static_cast<std::int32_t>(plain(both).size()));
    RankSet reversed = b;
    reversed.add(a);
    ASSERT_EQ(both, reversed);
    if (!both.empty()) {
      ASSERT_EQ(both.front(), *plain(both).begin());
      ASSERT_EQ(both.back(), *plain(both).rbegin());
    }
  }
}

// Goal: a subtree takes one run; lists of ranks read well and stay short.
// Method: examples.
TEST(RankSet, IsShort) {
  RankSet set;
  for (std::int32_t rank = 27599; rank >= 0; --rank) set.add(rank);
  EXPECT_EQ(set, RankSet::all(27600));
  EXPECT_EQ(set.runs().size(), 1u);
  EXPECT_TRUE(set.without(27600).empty());
  EXPECT_EQ(set.describe(), "ranks 0 to 27599");
  EXPECT_EQ(RankSet::of(2).describe(), "rank 2");
  EXPECT_EQ(of({2, 5}).describe(), "ranks 2 and 5");
  EXPECT_EQ(of({0, 1, 3, 4}).describe(), "ranks 0, 1, 3 and 4");
  EXPECT_EQ(of({0, 1, 5, 6, 7, 8, 9}).describe(), "ranks 0, 1 and 5 to 9");
  EXPECT_EQ(of({0, 2}).describe({4, 5, 9}), "ranks 4 and 9");
  EXPECT_EQ(of({1, 7}).describe({4, 5, 9}), "ranks 5 and 7") << "there is no rank 7";
  EXPECT_EQ(name_of(-1, {4}), -1);
  RankSet even;
  for (std::int32_t rank = 0; rank < 200; rank += 2) even.add(rank);
  EXPECT_TRUE(even.describe().ends_with("28, 30 and 84 more")) << even.describe();
}

}  // namespace
}  // namespace farandole::coordinator
