// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/staging_ring.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

// Goal: whoever gets bytes or words of the ring hears of every earlier use of them that it may
// still meet.
// Method: a list of all uses, none of which is ever over, beside the ring.
namespace farandole::cuda {
namespace {

EventPool::Held event(std::uintptr_t number) {
  return EventPool::Held(reinterpret_cast<Event>(number), [](Event) {});
}

struct Use {
  std::size_t offset, bytes, word;
};

bool meet(const Use& a, const Use& b) {
  const bool bytes = a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
  return bytes || a.word == b.word;
}

TEST(StagingRing, NamesEveryEarlierUse) {
  constexpr std::size_t kBytes = 9984, kWords = 7;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    std::mt19937_64 random(seed);
    StagingRing ring(kBytes, kWords);
    std::map<std::uintptr_t, Use> uses;  // that nobody has heard of
    for (std::uintptr_t i = 1; i < 400; ++i) {
      const std::size_t bytes = random() % (i % 5 == 0 ? kBytes : kBytes / 6);
      std::vector<EventPool::Held> ends;
      const StagingRing::Place place = ring.take(bytes, ends);
      ASSERT_GE(place.bytes, bytes);
      ASSERT_LE(place.offset + place.bytes, kBytes);
      const Use use{place.offset, place.bytes, ring.word_of(place.number)};
      std::set<std::uintptr_t> heard, wanted;
      for (const auto& end : ends) heard.insert(reinterpret_cast<std::uintptr_t>(end.get()));
      for (const auto& [number, other] : uses) {
        if (meet(use, other)) wanted.insert(number);
      }
      ASSERT_EQ(heard, wanted) << "seed " << seed << ", use " << i;
      for (const std::uintptr_t number : heard) uses.erase(number);
      ring.set_end(place.number, event(i));
      uses[i] = use;
    }
  }
}

TEST(StagingRing, WordsNeverHoldAValueTwice) {
  StagingRing ring(1000, 3);
  std::set<std::pair<std::size_t, std::uint32_t>> held;
  std::vector<EventPool::Held> ends;
  for (int i = 0; i < 50; ++i) {
    const auto number = ring.take(1, ends).number;
    EXPECT_TRUE(held.emplace(ring.word_of(number), ring.value_of(number)).second);
    EXPECT_NE(ring.value_of(number), 0U);
  }
}

}  // namespace
}  // namespace farandole::cuda
