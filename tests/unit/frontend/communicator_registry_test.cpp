// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "frontend/communicator_registry.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <thread>
#include <vector>

namespace farandole {
namespace {

// Goal: no two communicators get one number, whoever asks at once; a number that was passed over
// is never given.
// Method: threads take numbers that they race for; then one far ahead.
TEST(CommunicatorRegistry, GivesEachNumberOnce) {
  constexpr int kThreads = 4;
  constexpr std::size_t kEach = 200;
  CommunicatorRegistry registry;
  EXPECT_EQ(registry.next_number(), 1u);
  EXPECT_FALSE(registry.take_number(0));  // the world's
  std::vector<std::vector<std::uint32_t>> taken(kThreads);
  std::vector<std::thread> threads;
  for (auto& mine : taken) {
    threads.emplace_back([&] {
      while (mine.size() < kEach) {
        const std::uint32_t number = registry.next_number();
        if (registry.take_number(number)) mine.push_back(number);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<std::uint32_t> all;
  for (const auto& mine : taken) all.insert(mine.begin(), mine.end());
  EXPECT_EQ(all.size(), kThreads * kEach);
  EXPECT_TRUE(registry.take_number(5000));
  EXPECT_FALSE(registry.take_number(4999));
  EXPECT_EQ(registry.next_number(), 5001u);
}

// Goal: what communicators counted outlives them all, their last words a bounded number of them.
// Method: more communicators than are kept, with a label in common and one of its own.
TEST(CommunicatorRegistry, RemembersWhatWasRetired) {
  CommunicatorRegistry registry;
  for (std::uint32_t number = 0; number < 300; ++number) {
    FinalState words;
    words.next_sequence[number] = 1;
    CommunicatorRegistry::Calls calls;
    calls["shared"] = {2, 10};
    if (number == 7) calls["own"] = {1, 3};
    registry.retire(std::move(words), calls);
  }
  const auto calls = registry.retired_calls();
  EXPECT_EQ(calls.at("shared").calls, 600u);
  EXPECT_EQ(calls.at("shared").bytes, 3000u);
  EXPECT_EQ(calls.at("own").bytes, 3u);
  const std::vector<FinalState> words = registry.final_states();
  ASSERT_EQ(words.size(), 256u);
  EXPECT_TRUE(words.back().next_sequence.contains(299));
  EXPECT_TRUE(words.front().next_sequence.contains(44));
  EXPECT_TRUE(registry.living().empty());
}

}  // namespace
}  // namespace farandole
