// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/line_time.hpp"

#include <gtest/gtest.h>
#include <sched.h>

#include <chrono>
#include <vector>

namespace farandole::testing {
namespace {

std::vector<int> own_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  EXPECT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(static_cast<unsigned>(core), &set)) cores.push_back(core);
  }
  return cores;
}

// Goal: a time that a cache line can take, and the caller's affinity as it was.
// Method: between the first two cores. The bounds are a clock's cycle and what no machine needs.
TEST(LineTime, OfTwoCores) {
  const auto cores = own_cores();
  if (cores.size() < 2) GTEST_SKIP() << "one core: nothing to measure";
  const auto took = line_time(cores[0], cores[1], std::chrono::seconds(20));
  ASSERT_TRUE(took);
  EXPECT_GT(took->count(), 1e-9);
  EXPECT_LT(took->count(), 1e-3);
  EXPECT_EQ(own_cores(), cores);
}

TEST(LineTime, OneCoreHasNone) {
  const int core = own_cores().front();
  EXPECT_FALSE(line_time(core, core, std::chrono::seconds(60)));
}

// Goal: a core that is not there ends the measurement at once, whichever of the two it is.
TEST(LineTime, AbsentCoresHaveNone) {
  const int core = own_cores().front();
  const auto begin = std::chrono::steady_clock::now();
  for (const int absent : {-1, CPU_SETSIZE - 1, CPU_SETSIZE, 1 << 20}) {
    EXPECT_FALSE(line_time(core, absent, std::chrono::seconds(60)));
    EXPECT_FALSE(line_time(absent, core, std::chrono::seconds(60)));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(50));
}

// Goal: who gets no answer gives up. Method: no time at all for it.
TEST(LineTime, GivesUp) {
  const auto cores = own_cores();
  if (cores.size() < 2) GTEST_SKIP() << "one core: nothing to measure";
  EXPECT_FALSE(line_time(cores[0], cores[1], std::chrono::milliseconds(-1)));
}

}  // namespace
}  // namespace farandole::testing
