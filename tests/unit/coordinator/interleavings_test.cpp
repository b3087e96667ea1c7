// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
// Goal: the ranks agree after every cycle on what runs and on what their caches hold, and every
// request is answered once and rightly, whatever the order in which ranks ask.
// Method: small random training loops on virtual ranks in one thread; the seed of one that fails
// is printed. Then one rank's cache is broken on purpose, and the same checks have to notice.
#include <gtest/gtest.h>

#include <iostream>

#include "unit/coordinator/schedule.hpp"

namespace farandole::coordinator {
namespace {

using test::Kind;
using test::Schedule;

Schedule::Counts run_all(const Kind& kind, std::uint64_t schedule_count) {
  Schedule::Counts counts;
  std::uint64_t ran = 0;
  for (std::uint64_t seed = 0; seed < schedule_count; ++seed, ++ran) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Schedule schedule(kind, seed);
    const std::string violation = schedule.run();
    EXPECT_EQ(violation, "");
    if (!violation.empty()) break;
    counts += schedule.counts();
  }
  EXPECT_EQ(ran, schedule_count);
  std::cout << ran << " schedules, " << counts.requests << " requests, " << counts.hits
            << " cache hits, " << counts.evictions << " evictions, " << counts.invalidations
            << " invalidations, " << counts.failures << " errors\n";
  return counts;
}

TEST(Interleavings, OfStepsThatAgree) {
  const Schedule::Counts counts =
      run_all({.capacity_max = 8, .mismatch_percent = 0, .change_percent = 0}, 2000);
  EXPECT_EQ(counts.failures, 0);
  EXPECT_GT(counts.hits, counts.requests / 10);
}

TEST(Interleavings, OfTinyCachesAndMismatches) {
  const Schedule::Counts counts = run_all({.capacity_max = 4}, 4000);
  EXPECT_GT(counts.hits, counts.requests / 20);
  EXPECT_GT(counts.evictions, 1000);
  EXPECT_GT(counts.invalidations, 1000);
  EXPECT_GT(counts.failures, 1000);
}

TEST(Interleavings, OfRanksThatJoin) {
  const Schedule::Counts counts = run_all({.joins = true}, 4000);
  EXPECT_GT(counts.hits, counts.requests / 20);
  EXPECT_GT(counts.failures, 1000);
}

TEST(Interleavings, OfSeveralProcessSets) {
  const Schedule::Counts counts = run_all({.set_count_max = 3, .joins = true}, 2000);
  EXPECT_GT(counts.requests, 10000);
}

// Goal: the checks above can fail.
// Method: one rank's cache has another order of use; with and without a look at the caches.
TEST(Interleavings, NoticeABrokenCache) {
  const Kind kind{.capacity_min = 2,
                  .capacity_max = 3,
                  .step_count_min = 3,
                  .name_count_min = 4,
                  .mismatch_percent = 0};
  constexpr int kSchedules = 1000;
  for (const bool watch_caches : {true, false}) {
    int caught = 0;
    for (std::uint64_t seed = 0; seed < kSchedules; ++seed) {
      Schedule sound(kind, seed);
      ASSERT_EQ(sound.run(), "") << "seed " << seed;
      Schedule broken(kind, seed);
      broken.break_order_of_use(watch_caches);
      caught += !broken.run().empty();
    }
    std::cout << caught << " of " << kSchedules << " caught, the caches "
              << (watch_caches ? "watched\n" : "not watched\n");
    EXPECT_GT(caught, kSchedules / (watch_caches ? 2 : 10));
  }
}

}  // namespace
}  // namespace farandole::coordinator
