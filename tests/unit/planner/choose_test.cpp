// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "planner/choose.hpp"

#include <gtest/gtest.h>

#include "algorithms/registry.hpp"

namespace farandole {
namespace {

std::string_view allreduce_for(std::size_t bytes, bool peer_memory) {
  return choose_algorithm(Situation{Collective::kAllreduce, Bytes{bytes}, 8, peer_memory});
}

// Goal: whatever is chosen exists. Method: every collective, sizes from 0 to 4 GiB.
TEST(ChooseAlgorithm, AlwaysNamesOneThatExists) {
  for (int i = 0; i < kCollectiveCount; ++i) {
    const auto collective = static_cast<Collective>(i);
    for (const bool peer_memory : {false, true}) {
      for (const int rank_count : {1, 2, 3, 64, 1000}) {
        for (std::size_t bytes = 0; bytes <= std::size_t{4} << 30; bytes = 2 * bytes + 1) {
          const Situation situation{collective, Bytes{bytes}, rank_count, peer_memory};
          const auto found = find_algorithm(collective, choose_algorithm(situation));
          ASSERT_TRUE(found) << found.error().message;
        }
      }
    }
  }
}

// Goal: few steps for short messages, few bytes for long ones, reading in place where possible.
// Method: the two ends of the scale.
TEST(ChooseAlgorithm, FollowsSizeAndMemory) {
  EXPECT_EQ(allreduce_for(8, false), "recursive_doubling");
  EXPECT_EQ(allreduce_for(8, true), "recursive_doubling");
  EXPECT_EQ(allreduce_for(std::size_t{256} << 20, false), "ring");
  EXPECT_EQ(allreduce_for(std::size_t{256} << 20, true), "direct");
}

}  // namespace
}  // namespace farandole
