// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
// Goal: a step takes what its parts say, added up along the policy of the coordinator.
// Method: scenarios small enough to be added up by hand; then what must hold for any.
#include "simulator/training.hpp"

#include <gtest/gtest.h>

#include <random>

namespace farandole {
namespace {

// 1 ms to start with, then 1 ns per byte.
double linear(std::uint64_t bytes) {
  return 1e-3 + 1e-9 * static_cast<double>(bytes);
}

TrainingScenario two_gradients() {
  TrainingScenario scenario;
  scenario.gradients = {{250'000, 0.010, -1}, {500'000, 0.030, -1}};
  scenario.compute_seconds = 0.050;
  scenario.control_seconds = 1e-4;
  scenario.allreduce_seconds = linear;
  return scenario;
}

TrainingCost cost_of(const TrainingScenario& scenario) {
  auto cost = simulate_training(scenario);
  EXPECT_TRUE(cost) << cost.error().message;
  return cost ? *cost : TrainingCost{};
}

TEST(SimulateTraining, HidesWhatTheBackwardPassIsLongEnoughFor) {
  const TrainingCost cost = cost_of(two_gradients());
  EXPECT_EQ(cost.cycles, 2u);
  EXPECT_EQ(cost.batches, 2u);
  EXPECT_NEAR(cost.communication_seconds, 2e-3 + 3e-3, 1e-12);
  EXPECT_NEAR(cost.control_seconds, 2e-4, 1e-12);
  EXPECT_EQ(cost.seconds, 0.050);
  EXPECT_EQ(cost.exposed_seconds, 0.0);
}

TEST(SimulateTraining, FusesWhatIsReadyInOneCycle) {
  TrainingScenario scenario = two_gradients();
  scenario.cycle_seconds = 0.025;
  TrainingCost cost = cost_of(scenario);
  EXPECT_EQ(cost.cycles, 1u);
  EXPECT_EQ(cost.batches, 1u);
  EXPECT_NEAR(cost.communication_seconds, 4e-3, 1e-12);
  scenario.fusion_threshold_bytes = 2'000'000;  // less than both together
  cost = cost_of(scenario);
  EXPECT_EQ(cost.batches, 2u);
}

TEST(SimulateTraining, ExposesWhatComesLast) {
  TrainingScenario scenario = two_gradients();
  scenario.gradients[1].ready = 0.050;
  // The ranks wait for it, so the cycle begins at once.
  const TrainingCost cost = cost_of(scenario);
  EXPECT_NEAR(cost.exposed_seconds, 1e-4 + 3e-3, 1e-12);
  EXPECT_NEAR(cost.seconds, 0.050 + cost.exposed_seconds, 1e-12);
}

TEST(SimulateTraining, SendsAGroupWhenItsLastMemberIsReady) {
  TrainingScenario scenario = two_gradients();
  scenario.gradients[0].group = scenario.gradients[1].group = 0;
  scenario.fusion_threshold_bytes = 1;
  const TrainingCost cost = cost_of(scenario);
  EXPECT_EQ(cost.batches, 1u);
  EXPECT_EQ(cost.cycles, 1u);
}

TEST(SimulateTraining, KeepsFourBatchesUnderWay) {
  TrainingScenario scenario;
  for (int i = 0; i < 8; ++i) scenario.gradients.push_back({1, 0.0, -1});
  for (std::size_t i = 0; i < 8; ++i) scenario.gradients[i].group = static_cast<int>(i);
  scenario.gradients.push_back({1, 0.1, -1});
  scenario.gradients.push_back({1, 0.2, -1});
  scenario.compute_seconds = 0.3;
  scenario.cycle_seconds = 0;
  scenario.allreduce_seconds = [](std::uint64_t) { return 1.0; };
  // The eighth group leaves when four have ended, at 4 s. Only then comes the next cycle, for the
  // two others, which now travel as one.
  const TrainingCost cost = cost_of(scenario);
  EXPECT_EQ(cost.cycles, 2u);
  EXPECT_NEAR(cost.seconds, 9.0, 1e-12);
}

TEST(SimulateTraining, LosesNothingAndNeverBeatsItsParts) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int trial = 0; trial < 300; ++trial) {
    TrainingScenario scenario = two_gradients();
    scenario.gradients.clear();
    std::uint64_t bytes = 0;
    for (int i = 0; i < 40; ++i) {
      const std::uint64_t elements = random() % 1'000'000;
      const double ready = scenario.compute_seconds * double(random() % 1000) / 1000;
      scenario.gradients.push_back({elements, ready, static_cast<int>(random() % 6) - 3});
      bytes += 4 * elements;
    }
    scenario.cycle_seconds = double(random() % 5) * 1e-3;
    scenario.fusion_threshold_bytes = random() % 4'000'000;
    const TrainingCost cost = cost_of(scenario);
    EXPECT_NEAR(cost.communication_seconds, double(cost.batches) * 1e-3 + double(bytes) * 1e-9,
                1e-9);
    EXPECT_GE(cost.seconds, scenario.compute_seconds);
    EXPECT_GE(cost.seconds, cost.communication_seconds);
    EXPECT_LE(cost.exposed_seconds, cost.communication_seconds + cost.control_seconds);
  }
}

TEST(SimulateTraining, NamesWhatMakesNoSense) {
  const auto refused = [](auto change) {
    TrainingScenario scenario = two_gradients();
    change(scenario);
    auto cost = simulate_training(scenario);
    EXPECT_FALSE(cost);
    return cost ? std::string() : cost.error().message;
  };
  EXPECT_NE(refused([](auto& s) { s.cycle_seconds = -1; }).find("cycle_seconds"),
            std::string::npos);
  EXPECT_NE(refused([](auto& s) { s.gradients[1].ready = 1; }).find("gradients[1].ready"),
            std::string::npos);
  EXPECT_NE(refused([](auto& s) { s.allreduce_seconds = nullptr; }).find("allreduce_seconds"),
            std::string::npos);
}

}  // namespace
}  // namespace farandole
