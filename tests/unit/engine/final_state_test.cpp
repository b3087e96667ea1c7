// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/final_state.hpp"

#include <gtest/gtest.h>

#include <string>

namespace farandole {
namespace {

// Goal: last words arrive as they were said, whatever numbers they hold.
TEST(FinalState, SurvivesTheWay) {
  FinalState said;
  said.next_sequence = {{0, 17}, {4'000'000, 4'294'967'295}};
  said.messages[{0, 3}] = {.sent = 5, .received = 0};
  said.messages[{7, 0}] = {.sent = 0, .received = 4'294'967'295};
  const auto heard = decode_final_state(encode(said));
  ASSERT_TRUE(heard);
  EXPECT_EQ(heard->next_sequence, said.next_sequence);
  ASSERT_EQ(heard->messages.size(), 2u);
  EXPECT_EQ(heard->messages.at({0, 3}).sent, 5u);
  EXPECT_EQ(heard->messages.at({0, 3}).received, 0u);
  EXPECT_EQ(heard->messages.at({7, 0}).received, 4'294'967'295u);
  EXPECT_TRUE(decode_final_state(encode(FinalState())));
}

// Goal: damaged words promise nothing that they do not say.
// Method: every prefix and a byte more are refused; with one bit flipped they are refused, or are
// the words that encode() writes for what was read.
TEST(FinalState, RefusesDamage) {
  FinalState said;
  said.next_sequence = {{1, 17}, {3, 18}};
  said.messages[{1, 3}] = {.sent = 5, .received = 2};
  said.messages[{1, 7}] = {.sent = 6, .received = 1};
  const std::string bytes = encode(said);
  for (std::size_t n = 0; n < bytes.size(); ++n)
    EXPECT_FALSE(decode_final_state(bytes.substr(0, n)));
  EXPECT_FALSE(decode_final_state(bytes + '\0'));
  int refused = 0;
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string damaged = bytes;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << bit % 8);
    const auto heard = decode_final_state(damaged);
    refused += heard ? 0 : 1;
    if (!heard) continue;
    EXPECT_EQ(heard->next_sequence.size(), 2u) << bit;
    EXPECT_EQ(heard->messages.size(), 2u) << bit;
  }
  // Lengths, signs of ranks, and what would name one communicator or peer twice.
  EXPECT_GE(refused, 2 * 32 + 2 + 4);
}

// Goal: last words promise what ended well, and nothing from the first on that did not.
// Method: withdraw in any order, also what was never promised.
TEST(FinalState, PromisesNothingThatDidNotEndWell) {
  FinalState withdrawn;
  withdrawn.withdraw_collective(1, 9);
  withdrawn.withdraw_collective(1, 7);
  withdrawn.withdraw_collective(1, 8);
  withdrawn.withdraw_collective(2, 30);
  withdrawn.withdraw_message({1, 4}, true, 3);
  withdrawn.withdraw_message({1, 4}, true, 2);
  withdrawn.withdraw_message({1, 5}, false, 0);
  FinalState words;
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
