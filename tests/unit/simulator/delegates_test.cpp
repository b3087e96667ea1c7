// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
// Goal: a call by a delegate takes its price from the arrival of its last rank on, and leaves the
// calls beside it as they are.
// Method: known prices, alone and beside a ring.
#include <gtest/gtest.h>

#include <vector>

#include "algorithms/registry.hpp"
#include "simulator/simulate.hpp"
#include "unit/delegates/priced.hpp"
#include "unit/simulator/machines.hpp"

namespace farandole::testing {
namespace {

const Priced kPriced("priced", {1.0, 1e-6});

SimulatedCall by_priced(std::int64_t ranks) {
  return {.bytes = 1e6,
          .by_delegate = SimulatedCall::ByDelegate{.delegate = &kPriced, .rank_count = ranks}};
}

Simulator two_hosts() {
  return Simulator(*Network::create(machine_of(2, 2, 1, kRate), 4, Routing::kIdeal));
}

TEST(SimulatedDelegate, TakesItsPriceFromTheLastArrival) {
  Simulator simulator = two_hosts();
  SimulatedCall call = by_priced(4);
  const auto at_once = simulator.run({&call, 1}, {});
  ASSERT_TRUE(at_once) << at_once.error().message;
  const double price = kPriced.price(Collective::kAllreduce, 4, 2).of(1e6);
  EXPECT_DOUBLE_EQ(at_once->seconds, price);
  EXPECT_EQ(at_once->messages, 0);
  ASSERT_EQ(at_once->stages.size(), 1u);
  EXPECT_EQ(at_once->stages[0].name, "priced");
  EXPECT_DOUBLE_EQ(at_once->stages[0].seconds, price);
  call.start_seconds = {0, 5, 1, 2};
  const auto late = simulator.run({&call, 1}, {});
  EXPECT_DOUBLE_EQ(late->seconds, 5 + price);
  EXPECT_EQ(late->finish_seconds[0], std::vector<double>(4, 5 + price));
  const auto slow = simulator.run({&call, 1}, {.slow_down = {1, 1, 3, 1}});
  const double start_up = kPriced.price(Collective::kAllreduce, 4, 2).seconds;
  EXPECT_DOUBLE_EQ(slow->seconds, 5 + price + 2 * start_up);
}

TEST(SimulatedDelegate, StandsBesideSchedules) {
  Simulator simulator = two_hosts();
  const Schedule ring = *build_schedule(Collective::kAllreduce, "ring", 4, 0);
  const SimulatedCall alone{.schedule = &ring, .bytes = 1e6};
  const auto before = simulator.run({&alone, 1}, {});
  const std::vector<SimulatedCall> both = {by_priced(2), alone};
  const auto result = simulator.run(both, {.path = SimulationPath::kEvents});
  ASSERT_TRUE(result) << result.error().message;
  ASSERT_EQ(result->finish_seconds.size(), 2u);
  EXPECT_EQ(result->finish_seconds[0].size(), 2u);
  EXPECT_NEAR(result->finish_seconds[1][0], before->finish_seconds[0][0], 1e-9);
  EXPECT_GE(result->seconds, 2.0);
  EXPECT_EQ(result->messages, before->messages);
}

TEST(SimulatedDelegate, IsCheckedAsAnyCall) {
  Simulator simulator = two_hosts();
  SimulatedCall call = by_priced(5);
  EXPECT_FALSE(simulator.run({&call, 1}, {}));
  call = by_priced(4);
  call.start_seconds = {1};
  EXPECT_FALSE(simulator.run({&call, 1}, {}));
  const SimulatedCall nothing;
  EXPECT_FALSE(simulator.run({&nothing, 1}, {}));
}

}  // namespace
}  // namespace farandole::testing
