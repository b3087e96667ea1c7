// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/tree.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace farandole {
namespace {

/// How many living ranks can be reached from `start` over edges that both ends know.
int reach(int start, const Gone& gone) {
  std::vector<bool> seen(gone.size(), false);
  std::vector<int> open = {start};
  seen[static_cast<std::size_t>(start)] = true;
  int count = 0;
  while (!open.empty()) {
    const int rank = open.back();
    open.pop_back();
    ++count;
    for (const int next : neighbours_of(rank, gone)) {
      const auto back = neighbours_of(next, gone);
      EXPECT_TRUE(std::binary_search(back.begin(), back.end(), rank)) << rank << " - " << next;
      EXPECT_FALSE(gone[static_cast<std::size_t>(next)]);
      if (seen[static_cast<std::size_t>(next)]) continue;
      seen[static_cast<std::size_t>(next)] = true;
      open.push_back(next);
    }
  }
  return count;
}

// Goal: whoever has gone, the others form one tree, of whose edges both ends know.
// Method: every subset of ten ranks; count edges and what can be reached.
TEST(Tree, IsATreeOverEverySubset) {
  constexpr int kSize = 10;
  for (unsigned living = 1; living < 1u << kSize; ++living) {
    Gone gone(kSize);
    int count = 0, edges = 0, some = 0;
    for (int rank = 0; rank < kSize; ++rank) {
      gone[static_cast<std::size_t>(rank)] = (living >> rank & 1) == 0;
      if ((living >> rank & 1) == 0) continue;
      ++count;
      some = rank;
    }
    for (int rank = 0; rank < kSize; ++rank) {
      if (!gone[static_cast<std::size_t>(rank)]) edges += parent_of(rank, gone).has_value();
    }
    EXPECT_EQ(edges, count - 1) << living;
    EXPECT_EQ(reach(some, gone), count) << living;
  }
}

// Goal: with everybody there it is the binary tree; a missing rank's children go to its parent,
// the root's to the lowest rank left.
// Method: seven ranks by hand.
TEST(Tree, IsBinaryAndRepairsItself) {
  Gone gone(7, false);
  EXPECT_EQ(neighbours_of(0, gone), (std::vector<int>{1, 2}));
  EXPECT_EQ(neighbours_of(1, gone), (std::vector<int>{0, 3, 4}));
  EXPECT_EQ(neighbours_of(6, gone), (std::vector<int>{2}));
  gone[1] = true;
  EXPECT_EQ(neighbours_of(0, gone), (std::vector<int>{2, 3, 4}));
  gone[0] = true;
  EXPECT_EQ(neighbours_of(2, gone), (std::vector<int>{3, 4, 5, 6}));
  EXPECT_EQ(parent_of(2, gone), std::nullopt);
  EXPECT_EQ(neighbours_of(0, Gone(1, false)), std::vector<int>{});
}

}  // namespace
}  // namespace farandole
