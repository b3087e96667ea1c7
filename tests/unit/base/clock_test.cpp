// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "base/clock.hpp"

#include <gtest/gtest.h>

#include "base/ticks.hpp"

namespace farandole {
namespace {

using namespace std::chrono_literals;

// Goal: in virtual time nothing passes by itself, and everything that goes by the clock goes by
// the virtual one. Method: a deadline before and after the step that reaches it.
TEST(Clock, StandsStillUntilVirtualTimeIsAdvanced) {
  const Clock::time_point start{5s};
  VirtualTime time(start);
  const Deadline deadline = Deadline::after(100ms);
  const std::uint64_t ticks = Ticks::now();
  const TickRate rate;
  EXPECT_EQ(Clock::now(), start);
  EXPECT_EQ(deadline.remaining_ms(1000), 100);
  time.advance_to(start + 99ms);
  EXPECT_FALSE(deadline.passed());
  EXPECT_EQ(Ticks::now() - ticks, 99'000'000u);
  EXPECT_EQ(rate.nanoseconds(99), 99u);
  time.advance_to(start + 100ms);
  EXPECT_TRUE(deadline.passed());
  time.advance_to(start);
  EXPECT_EQ(Clock::now(), start + 100ms);
}

// Goal: production time comes back afterwards.
TEST(Clock, IsTheSystemsOtherwise) {
  const Clock::time_point before = Clock::now();
  {
    const VirtualTime time(Clock::time_point{1s});
  }
  EXPECT_FALSE(Clock::is_virtual());
  EXPECT_GE(Clock::now(), before);
}

}  // namespace
}  // namespace farandole
