// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "planner/fit.hpp"

#include <gtest/gtest.h>

#include <string>

#include "algorithms/registry.hpp"
#include "schedule/builder.hpp"

namespace farandole {
namespace {

bool takes(Collective collective, const std::string& algorithm, std::int64_t p) {
  const auto schedule = build_schedule(collective, algorithm, p, p / 2);
  EXPECT_TRUE(schedule) << schedule.error().message;
  return schedule && takes_counts(*schedule);
}

// Goal: the algorithms that calls with counts choose by themselves can run them, and those that
// put chunks where others belong, or several into scratch at once, are found out.
TEST(TakesCounts, TellsTheAlgorithmsApart) {
  for (const std::int64_t p : {1, 2, 3, 4, 7, 8, 16}) {
    for (const Collective collective : {Collective::kAllgather, Collective::kReducescatter}) {
      EXPECT_TRUE(takes(collective, "ring", p)) << name(collective) << p;
      EXPECT_TRUE(takes(collective, "direct", p)) << name(collective) << p;
    }
    EXPECT_TRUE(takes(Collective::kGather, "direct", p)) << p;
    EXPECT_TRUE(takes(Collective::kScatter, "direct", p)) << p;
    EXPECT_TRUE(takes(Collective::kAlltoall, "pairwise", p)) << p;
    if (p < 4) continue;
    EXPECT_FALSE(takes(Collective::kAllgather, "bruck", p)) << p;
    EXPECT_FALSE(takes(Collective::kAlltoall, "bruck", p)) << p;
    EXPECT_FALSE(takes(Collective::kGather, "binomial", p)) << p;
    EXPECT_FALSE(takes(Collective::kScatter, "binomial", p)) << p;
  }
  EXPECT_FALSE(takes(Collective::kAllgather, "ring", kRanksWithCountsMax + 1));
}

// Goal: one message that arrives under another name is noticed.
// Method: a right exchange between two ranks, and the same through a slot that belongs to the
// other rank's chunk.
TEST(TakesCounts, NoticesAChunkUnderAnotherName) {
  for (const std::int64_t turned : {0, 1}) {
    ScheduleBuilder b(Collective::kAllgather, "exchange", 2, 2);
    const Expr r = b.rank();
    b.scratch_slots(1);
    b.round()
        .copy(out(r), in(0))
        .send(in(0), 1 - r)
        .receive(scratch(0, (1 - r + turned) % 2), 1 - r);
    b.round().copy(out(1 - r), scratch(0, (1 - r + turned) % 2));
    const Schedule schedule = std::move(b).build();
    EXPECT_EQ(takes_counts(schedule), turned == 0);
  }
}

}  // namespace
}  // namespace farandole
