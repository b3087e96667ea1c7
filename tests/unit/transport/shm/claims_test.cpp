// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/claims.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <thread>
#include <vector>

namespace farandole::shm {
namespace {

TEST(Claims, BothEndsTakeTowardsEachOther) {
  Claims claims;
  claims.clear();
  EXPECT_EQ(claims.take_last(3), 2U);
  EXPECT_TRUE(claims.take_first(3));
  EXPECT_FALSE(claims.all_taken(3));
  EXPECT_EQ(claims.take_last(3), 1U);
  EXPECT_TRUE(claims.all_taken(3));
  EXPECT_FALSE(claims.take_last(3));
  EXPECT_FALSE(claims.take_first(3));
  EXPECT_EQ(claims.of_sender(), 2U);
  claims.clear();
  EXPECT_EQ(claims.take_last(1), 0U);
}

TEST(Claims, TheRestIsNotTheSenders) {
  Claims claims;
  claims.clear();
  EXPECT_TRUE(claims.take_last(1000));
  claims.take_rest(1000);
  EXPECT_TRUE(claims.all_taken(1000));
  EXPECT_FALSE(claims.take_last(1000));
  EXPECT_EQ(claims.of_sender(), 1U);
}

// Goal: every piece is taken once, by one end. Method: two threads take what they can get; what
// each has moved is not atomic, so that ThreadSanitizer sees a piece that both have.
TEST(Claims, EveryPieceIsTakenOnce) {
  constexpr std::size_t kPieces = 20'000;
  for (int round = 0; round < 20; ++round) {
    std::vector<int> moved(kPieces);
    Claims claims;
    claims.clear();
    std::thread sender([&] {
      while (const auto piece = claims.take_last(kPieces)) ++moved[*piece];
    });
    std::size_t received = 0;
    for (; claims.take_first(kPieces); ++received) ++moved[received];
    sender.join();
    EXPECT_EQ(moved, std::vector<int>(kPieces, 1));
    EXPECT_EQ(received + claims.of_sender(), kPieces);
  }
}

}  // namespace
}  // namespace farandole::shm
