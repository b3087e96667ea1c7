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

}  // namespace
}  // namespace farandole
