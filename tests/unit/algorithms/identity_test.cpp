// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "schedule/expand.hpp"
#include "unit/algorithms/all_schedules.hpp"

namespace farandole {
namespace {

// What every rank does, with the rounds in which it idles left out.
std::vector<std::vector<ConcreteRound>> steps(std::string_view spec, std::int64_t p) {
  auto ranks = expand(built(Collective::kAllreduce, spec, p)).ranks;
  for (auto& rounds : ranks) {
    std::erase_if(rounds, [](const ConcreteRound& round) { return round.empty(); });
  }
  return ranks;
}

std::string hierarchical(const std::vector<std::int64_t>& sizes, std::string_view kind) {
  return "hierarchical:" + layers_option(sizes, kind);
}

// Goal: hierarchical allreduce is the general case: one ring layer is the ring, one direct layer
// is the direct algorithm, and layers of two are Rabenseifner's.
// Method: the expanded steps of every rank, compared action by action.
TEST(HierarchicalAllreduce, WithOneLayerIsTheFlatAlgorithm) {
  for (std::int64_t p = 1; p <= 33; ++p) {
    EXPECT_EQ(steps(hierarchical({p}, "ring"), p), steps("ring", p)) << p;
    EXPECT_EQ(steps(hierarchical({p}, "direct"), p), steps("direct", p)) << p;
  }
}

TEST(HierarchicalAllreduce, WithLayersOfTwoIsRabenseifner) {
  std::vector<std::int64_t> twos;
  for (std::int64_t p = 2; p <= 64; p *= 2) {
    twos.push_back(2);
    for (const char* kind : {"ring", "halving", "direct"}) {
      EXPECT_EQ(steps(hierarchical(twos, kind), p), steps("rabenseifner", p)) << p << kind;
    }
    EXPECT_EQ(steps(hierarchical({p}, "halving"), p), steps("rabenseifner", p)) << p;
  }
}

// Goal: BlueConnect on 3 x 2 x 2 ranks: rings of 3 neighbours on all data, then rings of 2 on a
// third of it, then rings of 2 on a sixth. Method: the peers and bytes of rank 7, round by round.
TEST(HierarchicalAllreduce, IsBlueConnectOnTwelveRanks) {
  const auto rounds = steps("hierarchical:layers=3/2/2", 12)[7];
  std::vector<std::pair<std::int64_t, std::int64_t>> sent;  // peer, chunks of 12
  for (const ConcreteRound& round : rounds) {
    ASSERT_EQ(round.size(), 2u);
    sent.emplace_back(round[0].peer, round[0].source->count);
  }
  // Rank 7 is the second of its three, and has the neighbours 6 and 8; then 10; then 1.
  const std::vector<std::pair<std::int64_t, std::int64_t>> expected = {
      {8, 4}, {8, 4}, {10, 2}, {1, 1}, {1, 1}, {10, 2}, {8, 4}, {8, 4}};
  EXPECT_EQ(sent, expected);
}

TEST(HierarchicalAllreduce, TakesThePrimeFactorsWhereNoLayersAreGiven) {
  EXPECT_EQ(steps("hierarchical", 12), steps("hierarchical:layers=2/2/3", 12));
  EXPECT_EQ(steps("hierarchical", 13), steps("ring", 13));
}

// Goal: an order moves ranks to positions and leaves the steps of each position as they are.
TEST(HierarchicalAllreduce, WritesItsOrderIntoTheSchedule) {
  const auto schedule = built(Collective::kAllreduce, "hierarchical:layers=2/2,order=0/2/1/3", 4);
  EXPECT_EQ(schedule.order, (std::vector<std::int32_t>{0, 2, 1, 3}));
  EXPECT_EQ(steps("hierarchical:layers=2/2,order=0/2/1/3", 4), steps("hierarchical:layers=2/2", 4));
}

}  // namespace
}  // namespace farandole
