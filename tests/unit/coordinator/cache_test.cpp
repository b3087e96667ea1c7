// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "coordinator/cache.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "unit/coordinator/job.hpp"

namespace farandole::coordinator {
namespace {

using test::tensor;

// Goal: positions are the lowest free ones, and the extent ends with the last in use.
// Method: put, erase in the middle and at the end, put again.
TEST(Cache, TakesTheLowestPosition) {
  Cache cache(8);
  EXPECT_EQ(cache.extent(), 0u);
  EXPECT_FALSE(cache.oldest());
  for (const std::string name : {"a", "b", "c", "d"}) cache.put(tensor(name));
  EXPECT_EQ(cache.position("c"), 2u);
  EXPECT_TRUE(cache.erase("b"));
  EXPECT_FALSE(cache.erase("b"));
  EXPECT_EQ(cache.extent(), 4u);
  EXPECT_FALSE(cache.used(1));
  EXPECT_TRUE(cache.erase("d"));
  EXPECT_EQ(cache.extent(), 3u);
  cache.erase("c");
  EXPECT_EQ(cache.extent(), 1u) << "free ones at the end go, too";
  cache.put(tensor("e"));
  EXPECT_EQ(cache.position("e"), 1u);
  cache.erase("a");
  EXPECT_EQ(cache.extent(), 2u);
  cache.put(tensor("f"));
  EXPECT_EQ(cache.position("f"), 0u);
}

// Goal: the least recently used goes first; what is put again keeps its place and counts as used.
// Method: capacity 3.
TEST(Cache, EvictsTheOldest) {
  Cache cache(3);
  for (const std::string name : {"a", "b", "c"}) cache.put(tensor(name));
  cache.touch(0);
  cache.put(tensor("d"));
  EXPECT_FALSE(cache.contains("b"));
  EXPECT_EQ(cache.position("d"), 1u);
  cache.put(tensor("c", {9}));
  EXPECT_EQ(cache.position("c"), 2u);
  EXPECT_EQ(cache.at(2)->shape.front(), 9);
  cache.put(tensor("e"));
  EXPECT_FALSE(cache.contains("a"));
  EXPECT_EQ(cache.evictions(), 2u);
  EXPECT_EQ(cache.size(), 3u);
  Cache none(0);
  none.put(tensor("a"));
  EXPECT_EQ(none.size(), 0u);
}

// Goal: only agreeing terms are found.
// Method: the same name with other terms, and a request that outlives nothing of the cache.
TEST(Cache, FindsWhatAgrees) {
  Cache cache(2);
  cache.put(tensor("a"));
  EXPECT_EQ(cache.find(*tensor("a")), 0u);
  EXPECT_FALSE(cache.find(*tensor("a", {5})));
  EXPECT_FALSE(cache.find(*tensor("b")));
  EXPECT_TRUE(cache.contains("a"));
}

// Goal: the fingerprint tells apart what must be the same.
// Method: one difference at a time: position, terms, order of use.
TEST(Cache, HasAFingerprint) {
  const auto filled = [](const std::vector<SharedRequest>& requests) {
    Cache cache(4);
    for (const SharedRequest& request : requests) cache.put(request);
    return cache.fingerprint();
  };
  const std::string text = filled({tensor("a"), tensor("b")});
  EXPECT_EQ(text, filled({tensor("a"), tensor("b")}));
  EXPECT_NE(text, filled({tensor("b"), tensor("a")}));
  EXPECT_NE(text, filled({tensor("a"), tensor("b", {5})}));
  EXPECT_NE(text, filled({tensor("a"), tensor("b"), tensor("a")}));
}

// Goal: any sequence of operations does what a list in order of use would do.
// Method: random operations beside such a list.
TEST(Cache, IsAListInOrderOfUse) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const std::size_t capacity = 1 + random() % 5;
    Cache cache(capacity);
    std::vector<std::string> uses;  // the oldest first
    for (int step = 0; step < 100; ++step) {
      const std::string name(1, static_cast<char>('a' + random() % 7));
      const auto place = std::find(uses.begin(), uses.end(), name);
      const bool there = place != uses.end();
      ASSERT_EQ(cache.contains(name), there);
      switch (random() % 3) {
        case 0:
          ASSERT_EQ(cache.erase(name), there);
          if (there) uses.erase(place);
          break;
        case 1:
          if (!there) break;
          cache.touch(*cache.position(name));
          std::rotate(place, place + 1, uses.end());
          break;
        default:
          cache.put(tensor(name));
          if (there) uses.erase(place);
          if (uses.size() == capacity) uses.erase(uses.begin());
          uses.push_back(name);
      }
      ASSERT_EQ(cache.size(), uses.size());
      ASSERT_LE(cache.extent(), capacity);
      if (!uses.empty()) {
        ASSERT_EQ(cache.at(*cache.oldest())->name, uses.front());
      }
    }
  }
}

}  // namespace
}  // namespace farandole::coordinator
