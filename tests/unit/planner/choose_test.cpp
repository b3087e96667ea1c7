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

// Goal: whatever is chosen exists for so many ranks. Method: every collective, sizes from 0 to 4
// GiB.
TEST(ChooseAlgorithm, AlwaysNamesOneThatExists) {
  for (int i = 0; i < kCollectiveCount; ++i) {
    const auto collective = static_cast<Collective>(i);
    for (const bool peer_memory : {false, true}) {
      for (const int rank_count : {1, 2, 3, 64, 1024, 1025, 27'600}) {
        for (std::size_t bytes = 0; bytes <= std::size_t{4} << 30; bytes = 2 * bytes + 1) {
          const Situation situation{collective, Bytes{bytes}, rank_count, peer_memory};
          const auto found = find_algorithm(collective, choose_algorithm(situation));
          ASSERT_TRUE(found) << found.error().message;
          EXPECT_LE(rank_count, (*found)->ranks_max) << (*found)->name;
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
  const auto over_sockets = [](Collective collective, std::size_t bytes) {
    return choose_algorithm(Situation{collective, Bytes{bytes}, 16, false});
  };
  EXPECT_EQ(over_sockets(Collective::kBroadcast, 1 << 10), "binomial");
  EXPECT_EQ(over_sockets(Collective::kBroadcast, 1 << 20), "scatter_allgather");
  EXPECT_EQ(over_sockets(Collective::kBroadcast, 64 << 20), "pipelined_chain");
  EXPECT_EQ(over_sockets(Collective::kAlltoall, 1 << 10), "bruck");
  EXPECT_EQ(over_sockets(Collective::kAlltoall, 1 << 20), "pairwise");
  EXPECT_EQ(over_sockets(Collective::kReducescatter, 1 << 10), "halving");
  EXPECT_EQ(over_sockets(Collective::kAllgather, 1 << 20), "ring");
}

}  // namespace
}  // namespace farandole
