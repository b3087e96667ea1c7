// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/intervals.hpp"

#include <gtest/gtest.h>

#include <array>
#include <random>

namespace farandole {
namespace {

// Goal: the set equals what a plain array of flags says, and is stored without neighbours.
// Method: random adds of absent ranges and removals of any range, checked after every step.
TEST(Intervals, AgreesWithFlags) {
  constexpr std::size_t kSize = 64;
  for (unsigned seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    Intervals set;
    std::array<bool, kSize> flags{};
    for (int step = 0; step < 200; ++step) {
      const std::size_t offset = random() % kSize;
      const std::size_t bytes = 1 + random() % (kSize - offset);
      const auto first = flags.begin() + static_cast<std::ptrdiff_t>(offset);
      const auto last = first + static_cast<std::ptrdiff_t>(bytes);
      if (random() % 2 == 0) {
        set.remove(offset, bytes);
        std::fill(first, last, false);
      } else if (std::find(first, last, true) == last) {
        const Intervals::Interval whole = set.add(offset, bytes);
        std::fill(first, last, true);
        EXPECT_LE(whole.offset, offset);
        EXPECT_GE(whole.offset + whole.bytes, offset + bytes);
        EXPECT_EQ(set.map().at(whole.offset), whole.bytes);
      }
      std::array<bool, kSize> seen{};
      std::size_t total = 0, end = kSize + 1;
      for (const auto& [start, length] : set.map()) {
        EXPECT_NE(start, end) << "neighbours are not joined";
        end = start + length;
        total += length;
        for (std::size_t i = start; i < end; ++i) seen.at(i) = true;
      }
      ASSERT_EQ(seen, flags);
      EXPECT_EQ(set.total_bytes(), total);
    }
  }
}

}  // namespace
}  // namespace farandole
