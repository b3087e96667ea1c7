// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/farewell.hpp"

#include <gtest/gtest.h>

namespace farandole {
namespace {

// Goal: last words arrive as they were said, and words that make no sense promise nothing.
TEST(Farewell, SurvivesTheWay) {
  Farewell said;
  said.next_sequence = {{0, 17}, {4'000'000, 4'294'967'295}};
  said.messages[{0, 3}] = {.sent = 5, .received = 0};
  said.messages[{7, 0}] = {.sent = 0, .received = 4'294'967'295};
  const Farewell heard = Farewell::parse(said.text());
  EXPECT_EQ(heard.next_sequence, said.next_sequence);
  ASSERT_EQ(heard.messages.size(), 2u);
  EXPECT_EQ(heard.messages.at({0, 3}).sent, 5u);
  EXPECT_EQ(heard.messages.at({0, 3}).received, 0u);
  EXPECT_EQ(heard.messages.at({7, 0}).received, 4'294'967'295u);
}

TEST(Farewell, PromisesNothingThatWasNotSaid) {
  for (const char* text : {"", " ", "c", "c 1", "c x 2", "m 1 2 3", "nonsense"}) {
    const Farewell heard = Farewell::parse(text);
    EXPECT_TRUE(heard.next_sequence.empty() && heard.messages.empty()) << text;
  }
}

// Goal: last words promise what ended well, and nothing from the first on that did not.
// Method: withdraw in any order, also what was never promised.
TEST(Farewell, PromisesNothingThatDidNotEndWell) {
  Farewell withdrawn;
  withdrawn.withdraw_collective(1, 9);
  withdrawn.withdraw_collective(1, 7);
  withdrawn.withdraw_collective(1, 8);
  withdrawn.withdraw_collective(2, 30);
  withdrawn.withdraw_message({1, 4}, true, 3);
  withdrawn.withdraw_message({1, 4}, true, 2);
  withdrawn.withdraw_message({1, 5}, false, 0);
  Farewell words;
  words.next_sequence = {{0, 20}, {1, 20}, {2, 20}};
  words.messages[{1, 4}] = {.sent = 6, .received = 6};
  words.messages[{1, 6}] = {.sent = 6, .received = 6};
  words.limit(withdrawn);
  const std::map<std::uint32_t, std::uint32_t> left = {{0, 20}, {1, 7}, {2, 20}};
  EXPECT_EQ(words.next_sequence, left);
  ASSERT_EQ(words.messages.size(), 2u);
  EXPECT_EQ(words.messages.at({1, 4}).sent, 2u);
  EXPECT_EQ(words.messages.at({1, 4}).received, 6u);
  EXPECT_EQ(words.messages.at({1, 6}).sent, 6u);
}

}  // namespace
}  // namespace farandole
