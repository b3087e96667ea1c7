// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
// Goal: a delegate is planned by its price, beside the schedules, and only where it takes part.
// Method: one that costs next to nothing and one that costs a day.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>

#include "algorithms/registered.hpp"
#include "planner/default_machine.hpp"
#include "planner/plan.hpp"
#include "planner/plan_table.hpp"
#include "unit/delegates/priced.hpp"

namespace farandole::testing {
namespace {

const AlgorithmInfo* row(const std::string& name, DelegatePrice price) {
  if (!find_registered(Collective::kAllreduce, name)) {
    EXPECT_TRUE(register_delegate(std::make_shared<Priced>(name, price)));
  }
  return find_registered(Collective::kAllreduce, name);
}
const AlgorithmInfo* cheap() {
  return row("cheap", {1e-9, 1e-15});
}
const AlgorithmInfo* dear() {
  return row("dear", {86400, 0});
}
Levels levels(std::int64_t ranks, std::int64_t each) {
  return Levels(default_machine(each, ranks / each, true),
                {.rank_count = ranks, .ranks_per_host = each});
}

TEST(PlannedDelegate, CostsItsPrice) {
  dear();
  Levels host = levels(4, 4), hosts = levels(4, 2), one = levels(1, 1);
  const auto within = predict(Collective::kAllreduce, "dear", 1e6, host);
  ASSERT_TRUE(within) << within.error().message;
  EXPECT_DOUBLE_EQ(within->seconds(), 86400);
  ASSERT_EQ(within->stages.size(), 1u);
  EXPECT_EQ(within->stages[0].name, "dear");
  EXPECT_EQ(within->stages[0].hop, Hop::kHost);
  const auto between = predict(Collective::kAllreduce, "dear", 1e6, hosts);
  EXPECT_DOUBLE_EQ(between->seconds(), 2 * 86400);
  EXPECT_EQ(between->stages[0].hop, Hop::kFabric);
  EXPECT_EQ(predict(Collective::kAllreduce, "dear", 1e6, one)->seconds(), 0);
  EXPECT_FALSE(predict(Collective::kAllgather, "dear", 1e6, host));
}

TEST(PlannedDelegate, TakesPartWhereItIsOffered) {
  Levels host = levels(4, 4);
  const auto names = [&](const PlanOptions& options, Collective collective) {
    std::vector<std::string> found;
    for (const Candidate& one : plan(collective, 1e6, host, options)) found.push_back(one.spec);
    return found;
  };
  const PlanOptions both{.delegates = {dear(), cheap()}};
  const auto with = names(both, Collective::kAllreduce);
  EXPECT_EQ(with.front(), "cheap");
  EXPECT_EQ(with.back(), "dear");
  const auto without = names({}, Collective::kAllreduce);
  EXPECT_EQ(without.size() + 2, with.size());
  EXPECT_EQ(names(both, Collective::kAllgather), names({}, Collective::kAllgather));
  EXPECT_EQ(choose(plan(Collective::kAllreduce, 1e6, host, both)).spec, "cheap");
}

TEST(PlannedDelegate, TableHasASecondChoiceForCallsThatItDoesNotTake) {
  PlanTable table(default_machine(4, 1, true), {.rank_count = 4, .ranks_per_host = 4}, {4, 1, true},
                  {}, {cheap(), dear()});
  using Kind = PlanTable::Kind;
  EXPECT_EQ(table.find(Collective::kAllreduce, 1000), "cheap");
  const std::string second = table.find(Collective::kAllreduce, 1000, Kind::kSchedule);
  EXPECT_TRUE(build_schedule(Collective::kAllreduce, second, 4, 0)) << second;
  table.set(Collective::kAllreduce, 1000, "dear");
  EXPECT_EQ(table.find(Collective::kAllreduce, 1000), "dear");
  EXPECT_EQ(table.find(Collective::kAllreduce, 1000, Kind::kSchedule), second);
  table.set(Collective::kAllreduce, 1000, "ring");
  EXPECT_EQ(table.find(Collective::kAllreduce, 1000, Kind::kSchedule), "ring");
}

TEST(PlannedDelegate, HasANameOfItsOwnAndNoSchedule) {
  cheap();
  EXPECT_FALSE(register_delegate(std::make_shared<Priced>("cheap", DelegatePrice{})));
  EXPECT_FALSE(register_delegate(std::make_shared<Priced>("ring", DelegatePrice{})));
  const auto built = build_schedule(Collective::kAllreduce, "cheap", 4, 0);
  ASSERT_FALSE(built);
  EXPECT_NE(built.error().message.find("is a delegate"), std::string::npos);
  const auto rows = all_algorithms();
  EXPECT_EQ(std::ranges::count(rows, cheap()), 1);
  EXPECT_EQ(index_of(*cheap()), kRegistered);
}

}  // namespace
}  // namespace farandole::testing
