// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "planner/choice.hpp"

#include <gtest/gtest.h>

#include <string>

#include "planner/plan.hpp"
#include "unit/planner/costs.hpp"

namespace farandole {
namespace {

constexpr int kRanks = 8;

PlanTable table_of(TuningTable tuning = {}) {
  return {usual_machine(1, kRanks, true),
          {.rank_count = kRanks},
          {kRanks, kRanks, "tcp"},
          std::move(tuning)};
}

CallShape call_of(std::size_t count, Collective collective = Collective::kAllreduce) {
  return {.collective = collective,
          .count = Count{count},
          .dtype = DType::kFloat32,
          .rank_count = kRanks};
}

struct Asked {
  Choice choice;
  bool table = false;  // was asked for
};

Asked ask(const CallShape& call, const Preferences& preferences, PlanTable table = table_of()) {
  if (auto preferred = choose_by_preference(call, preferences))
    return {*std::move(preferred), false};
  return {choose_by_table(call, table), true};
}

void expect(const Asked& asked, const std::string& spec, Reason reason) {
  EXPECT_EQ(asked.choice.spec, spec);
  EXPECT_EQ(asked.choice.reason, reason);
  EXPECT_EQ(asked.table, reason == Reason::kTable || reason == Reason::kCost);
}

// Goal: the call's own preference, then counts, then a schedule of a person, then the setting, then
// a table, then the model; the table is not made for those that do not need it.
TEST(ChooseAlgorithm, TakesTheFirstThatNamesOne) {
  CallShape call = call_of(1024);
  Levels levels(usual_machine(1, kRanks, true), {.rank_count = kRanks});
  const std::string planned = choose(plan(Collective::kAllreduce, 4096, levels)).spec;
  auto tuning =
      parse_tuning("farandole-tuning 1\nallreduce bytes<=4096 ring\n", "t", {"shm", "tcp"});
  ASSERT_TRUE(tuning);
  ASSERT_NE(planned, "ring");
  expect(ask(call, {}), planned, Reason::kCost);
  expect(ask(call, {.call = "auto"}), planned, Reason::kCost);
  expect(ask(call, {}, table_of(*tuning)), "ring", Reason::kTable);
  expect(ask(call, {.setting = "recursive_doubling"}, table_of(*tuning)), "recursive_doubling",
         Reason::kSetting);
  expect(ask(call, {.schedule = "star", .setting = "ring"}), "star", Reason::kSchedule);
  expect(ask(call, {.call = "direct", .schedule = "star"}), "direct", Reason::kCall);
  call.by_rank = true;
  expect(ask(call, {.call = "bruck", .setting = "ring"}), "bruck", Reason::kCall);
  expect(ask(call, {.schedule = "star", .setting = "tree"}), "ring", Reason::kCounts);
}

// Goal: a setting counts for collectives that know its algorithm, and for no others.
TEST(ChooseAlgorithm, SettingNeedsAnAlgorithmOfItsName) {
  expect(ask(call_of(8, Collective::kAlltoall), {.setting = "pairwise"}), "pairwise",
         Reason::kSetting);
  EXPECT_EQ(ask(call_of(8), {.setting = "pairwise"}).choice.reason, Reason::kCost);
}

// Goal: calls with counts get an algorithm that takes them: one that reads memory where it is, if
// ranks do that.
TEST(ChooseAlgorithm, CountsHaveTheirOwn) {
  for (const bool peer_memory : {false, true}) {
    for (const Collective collective : {Collective::kAllgather, Collective::kReducescatter,
                                        Collective::kGather, Collective::kAlltoall}) {
      CallShape call = call_of(8, collective);
      call.by_rank = true;
      call.peer_memory = peer_memory;
      const bool root = collective == Collective::kGather;
      const bool all = collective == Collective::kAlltoall;
      const char* expected = all ? "pairwise" : root || peer_memory ? "direct" : "ring";
      expect(ask(call, {}), expected, Reason::kCounts);
    }
  }
}

// Goal: a call is planned by the bytes of its larger side, shifted as it asks.
// Method: a table with a limit, and calls on both of its sides.
TEST(ChooseAlgorithm, PlansByTheShiftedLargerSide) {
  EXPECT_EQ(larger_side(call_of(3)), Bytes{12});
  EXPECT_EQ(larger_side(call_of(3, Collective::kAllgather)), Bytes{12 * kRanks});
  EXPECT_EQ(larger_side(call_of(3, Collective::kScatter)), Bytes{12 * kRanks});
  EXPECT_EQ(larger_side(call_of(3, Collective::kBroadcast)), Bytes{12});
  auto tuning =
      parse_tuning("farandole-tuning 1\nallreduce bytes<=4096 ring\n", "t", {"shm", "tcp"});
  ASSERT_TRUE(tuning);
  const auto reason = [&](std::size_t count, int shift) {
    CallShape call = call_of(count);
    call.size_shift = shift;
    return ask(call, {}, table_of(*tuning)).choice.reason;
  };
  EXPECT_EQ(reason(1024, 0), Reason::kTable);
  EXPECT_EQ(reason(1025, 0), Reason::kCost);
  EXPECT_EQ(reason(1024, 1), Reason::kCost);
  EXPECT_EQ(reason(2048, -1), Reason::kTable);
  EXPECT_EQ(reason(1024, 200), Reason::kCost);  // no overflow
}

}  // namespace
}  // namespace farandole
