// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "planner/plan_table.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>

#include "planner/plan.hpp"
#include "unit/planner/costs.hpp"

namespace farandole {
namespace {

PlanTable table_of(std::int64_t ranks, TuningTable tuning = {}) {
  return {usual_machine(1, ranks, true),
          {.rank_count = ranks},
          {ranks, ranks, "tcp"},
          std::move(tuning)};
}

// Goal: classes cover all sizes without gap, two per power of two.
TEST(SizeClass, CoversAllSizes) {
  std::size_t last = SizeClass::of(0);
  EXPECT_EQ(last, 0u);
  for (std::uint64_t bytes = 1; bytes <= 5000; ++bytes) {
    const std::size_t size_class = SizeClass::of(bytes);
    EXPECT_LE(bytes, SizeClass::limit(size_class));
    EXPECT_GT(bytes, SizeClass::limit(size_class == 3 ? 1 : size_class - 1));  // 2 is empty
    EXPECT_GE(size_class, last);
    last = size_class;
  }
  EXPECT_EQ(SizeClass::of(16384) + 1, SizeClass::of(16385));
  EXPECT_EQ(SizeClass::of(16384) + 2, SizeClass::of(24577));
  EXPECT_LT(SizeClass::of(TuningEntry::kNoLimit), SizeClass::kCount);
}

// Goal: the plan's first, unless the tuning table says otherwise, unless the caller does.
TEST(PlanTable, CallerBeforeTuningBeforePlan) {
  Levels levels(usual_machine(1, 8, true), {.rank_count = 8});
  const std::string planned = choose(plan(Collective::kAllreduce, 4096, levels)).spec;
  ASSERT_NE(planned, "ring");
  auto tuning =
      parse_tuning("farandole-tuning 1\nallreduce bytes<=4096 ring\n", "t", {"shm", "tcp"});
  ASSERT_TRUE(tuning);
  EXPECT_EQ(table_of(8).find(Collective::kAllreduce, 4096), planned);
  PlanTable table = table_of(8, *tuning);
  EXPECT_EQ(table.find(Collective::kAllreduce, 4096), "ring");
  EXPECT_NE(table.find(Collective::kAllreduce, 4097), "ring");
  table.set(Collective::kAllreduce, 4000, "rabenseifner");
  EXPECT_EQ(table.find(Collective::kAllreduce, 4096), "rabenseifner");
  EXPECT_EQ(table.find(Collective::kAllreduce, 3072), "ring");  // another class
  table.set(Collective::kAllreduce, 4000, "direct");
  EXPECT_EQ(table.find(Collective::kAllreduce, 4096), "direct");
  EXPECT_EQ(table.tuning().entries.size(), 2u);
  table.set(Collective::kAllreduce, 4000, "");
  EXPECT_EQ(table.find(Collective::kAllreduce, 4096), "ring");
}

// Goal: a warm look-up evaluates no formula. Method: its time is printed; what is tested is that
// it gives the same string object again.
TEST(PlanTable, WarmLookUp) {
  PlanTable table = table_of(2048);
  const std::string* first = &table.find(Collective::kAllreduce, 1 << 20);
  constexpr int kTimes = 1'000'000;
  std::size_t sum = 0;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kTimes; ++i) {
    sum += table.find(Collective::kAllreduce, (1u << 20) - static_cast<unsigned>(i % 1000)).size();
  }
  const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - start;
  std::printf("a warm look-up takes %.1f ns (measured)\n", spent.count() / kTimes);
  EXPECT_EQ(sum, first->size() * kTimes);
  EXPECT_EQ(first, &table.find(Collective::kAllreduce, (1 << 20) - 1));
}

}  // namespace
}  // namespace farandole
