// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
// Goal: what a cycle costs at the scale of the largest machines stays within the bounds that the
// design promises, and the simulation counts what the code really sends.
// Method: the production controllers of all ranks in one process; bounds by the logarithm of the
// number of ranks; small cases counted by hand.
#include "simulator/coordination.hpp"

#include <gtest/gtest.h>

#include <bit>

namespace farandole {
namespace {

std::vector<CoordinationCost> costs(CoordinationDesign design, std::int32_t rank_count,
                                    std::int32_t tensor_count, int steps = 2) {
  CoordinationScenario scenario;
  scenario.design = design;
  scenario.rank_count = rank_count;
  scenario.tensor_count = tensor_count;
  auto result = simulate_coordination(scenario, steps);
  EXPECT_TRUE(result) << result.error().message;
  return result ? *result : std::vector<CoordinationCost>(std::size_t(steps));
}

std::uint64_t log2_up(std::int32_t value) {
  return static_cast<std::uint64_t>(std::bit_width(static_cast<std::uint32_t>(value) - 1));
}

class Scale : public ::testing::TestWithParam<std::int32_t> {};
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
INSTANTIATE_TEST_SUITE_P(Ranks, Scale, ::testing::Values(2, 3, 64, 1000));  // ten times slower
#else
INSTANTIATE_TEST_SUITE_P(Ranks, Scale, ::testing::Values(2, 3, 64, 1000, 6000, 27'600));
#endif

TEST_P(Scale, ASteadyCycleIsSmallAndLogarithmic) {
  const std::int32_t ranks = GetParam();
  const auto cycle = costs(CoordinationDesign::kCached, ranks, 40, 3).back();
  EXPECT_LE(cycle.message_bytes_max, 1024u / 8 + 64);
  EXPECT_LE(cycle.rounds, log2_up(ranks) + 1);
  EXPECT_LE(cycle.received_by_rank_0, log2_up(ranks));
}

TEST_P(Scale, RankZeroHearsFromLogarithmicallyManyOnTheTree) {
  const std::int32_t ranks = GetParam();
  const auto all = costs(CoordinationDesign::kTree, ranks, 20);
  for (const CoordinationCost& cycle : all) {
    EXPECT_EQ(cycle.received_by_rank_0, log2_up(ranks));
    EXPECT_EQ(cycle.messages, 2u * static_cast<std::uint64_t>(ranks - 1));
    EXPECT_LE(cycle.rounds, 2 * log2_up(ranks));
  }
  // The first cycle of the cached design takes both ways.
  const auto first = costs(CoordinationDesign::kCached, ranks, 20).front();
  EXPECT_LE(first.received_by_rank_0, 2 * log2_up(ranks));
}

TEST(Coordination, AFlatCoordinatorHearsFromEverybody) {
  const auto cycle = costs(CoordinationDesign::kFlat, 100, 5).back();
  EXPECT_EQ(cycle.received_by_rank_0, 99u);
  EXPECT_EQ(cycle.messages, 198u);
  EXPECT_EQ(cycle.rounds, 2u);
}

TEST(Coordination, TwoRanksTakeTheTimeThatTheModelSays) {
  CoordinationScenario scenario;
  scenario.rank_count = 2;
  scenario.tensor_count = 3;
  scenario.network = {.latency_us = 5, .overhead_us = 1, .bytes_per_us = 16};
  auto result = simulate_coordination(scenario, 2);
  ASSERT_TRUE(result);
  // Two words, both ways at once: 1 + 16/16 to send, 5 on the way, 1 to receive.
  EXPECT_EQ(result->back().bytes, 32u);
  EXPECT_NEAR(result->back().seconds, 8e-6, 1e-12);
}

TEST(Coordination, RefusesWhatMakesNoSense) {
  const auto refused = [](const CoordinationScenario& scenario, int steps, const char* naming) {
    auto result = simulate_coordination(scenario, steps);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().kind, ErrorKind::kInvalidArgument);
    EXPECT_NE(result.error().message.find(naming), std::string::npos) << result.error().message;
  };
  refused({.rank_count = 0}, 1, "'rank_count'");
  refused({.rank_count = 2, .tensor_count = 0}, 1, "'tensor_count'");
  refused({.rank_count = 2}, 0, "'step_count'");
  refused({.rank_count = 2, .network = {.bytes_per_us = 0}}, 1, "'network'");
}

}  // namespace
}  // namespace farandole
