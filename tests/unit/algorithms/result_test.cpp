// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "unit/algorithms/all_schedules.hpp"
#include "unit/algorithms/reference_executor.hpp"

namespace farandole {
namespace {

// Goal: the algorithms compute what they promise, apart from any proof.
// Method: run them on numbers, in and out of place, with waiting and with buffered sends, in two
// orders, and compare with sums computed directly.
TEST(Result, EveryAlgorithmEqualsAPlainSumUpToNineRanks) {
  for (std::int64_t p = 1; p <= 9; ++p) {
    for (const Schedule& schedule : all_schedules(p)) {
      const auto wrong = judge(expand(schedule));
      EXPECT_FALSE(wrong) << described(schedule) << ": " << *wrong;
    }
  }
}

// Goal: the executor above can fail, in each of its ways.
// Method: one damage for each verdict.
TEST(Result, TheExecutorSeesEachKindOfFault) {
  const Expanded intact = expand(built(Collective::kAllreduce, "ring", 3));
  const auto verdict = [&](auto&& damage, Regime regime = {}) {
    Expanded broken = intact;
    damage(broken.ranks[1]);
    return run_reference(broken, regime).value_or("right");
  };
  EXPECT_EQ(verdict([](auto&) {}), "right");
  EXPECT_EQ(verdict([](auto& rounds) { rounds.pop_back(); }), "deadlock");
  EXPECT_EQ(verdict([](auto& rounds) { rounds[3].pop_back(); }, {.eager = true}),
            "message left over");
  EXPECT_EQ(verdict([](auto& rounds) { rounds[0][1].operand.reset(); }),
            "wrong result at rank 0, chunk 2");
  EXPECT_EQ(verdict([](auto& rounds) { rounds[3][0].source->count = 2; }), "message too long");
  EXPECT_EQ(verdict([](auto& rounds) { rounds[0][1].target->buffer = Buffer::kIn; }),
            "wrong result at rank 0, chunk 2");
}

}  // namespace
}  // namespace farandole
