// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
// Goal: a delegate is planned by its price, beside the schedules, and only where it takes part.
// Method: one that costs next to nothing and one that costs a day.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>

#include "algorithms/registered.hpp"
#include "planner/choice.hpp"
#include "planner/plan.hpp"
#include "planner/plan_table.hpp"
#include "unit/delegates/priced.hpp"
#include "unit/planner/costs.hpp"

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
  return Levels(usual_machine(each, ranks / each, true),
                {.rank_count = ranks, .ranks_per_host = each});
}

using Kind = PlanTable::Kind;
PlanTable table_of_both() {
  return {usual_machine(4, 1, true),
          {.rank_count = 4, .ranks_per_host = 4},
          {4, 1, "shm"},
          {},
          {cheap(), dear()}};
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
  PlanTable table = table_of_both();
  EXPECT_EQ(table.find(Collective::kAllreduce, 1000), "cheap");
  const std::string second = table.find(Collective::kAllreduce, 1000, Kind::kSchedule);
  EXPECT_TRUE(build_schedule(Collective::kAllreduce, second, 4, 0)) << second;
  table.set(Collective::kAllreduce, 1000, "dear");
  EXPECT_EQ(table.find(Collective::kAllreduce, 1000), "dear");
  EXPECT_EQ(table.find(Collective::kAllreduce, 1000, Kind::kSchedule), second);
  table.set(Collective::kAllreduce, 1000, "ring");
  EXPECT_EQ(table.find(Collective::kAllreduce, 1000, Kind::kSchedule), "ring");
}

TEST(PlannedDelegate, IsChosenForCallsThatItTakes) {
  PlanTable table = table_of_both();
  const auto chosen = [&](const CallShape& call, const Preferences& preferences) {
    const auto preferred = choose_by_preference(call, preferences);
    return preferred ? *preferred : choose_by_table(call, table);
  };
  const CallShape sum{.count = Count{1000}, .rank_count = 4};
  CallShape average = sum, fixed = sum, elsewhere = sum, changed = sum, counts = sum;
  average.reduction = Reduction::kAverage;
  fixed.deterministic = true;
  elsewhere.device = "gpu";
  changed.kind = Kind::kSchedule;
  counts.by_rank = true;
  EXPECT_EQ(chosen(sum, {}).spec, "cheap");
  EXPECT_EQ(chosen(sum, {.setting = "dear"}).reason, Reason::kSetting);
  for (const CallShape& other : {average, fixed, elsewhere, changed}) {
    for (const Preferences& preferences : {Preferences{}, Preferences{.setting = "dear"}}) {
      const Choice choice = chosen(other, preferences);
      EXPECT_EQ(choice.reason, Reason::kCost);
      EXPECT_TRUE(build_schedule(Collective::kAllreduce, choice.spec, 4, 0)) << choice.spec;
    }
    EXPECT_EQ(chosen(other, {.call = "dear"}).spec, "dear");
    EXPECT_FALSE(may_run_by(other, "dear"));
    EXPECT_TRUE(may_run_by(other, "ring"));
  }
  EXPECT_TRUE(may_run_by(sum, "dear"));
  EXPECT_FALSE(may_run_by(counts, "dear"));
  table.set(Collective::kAllreduce, 4000, "dear");
  EXPECT_EQ(chosen(sum, {}).spec, "dear");
  EXPECT_EQ(chosen(sum, {}).reason, Reason::kTable);
  EXPECT_EQ(chosen(average, {}).reason, Reason::kCost);
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
