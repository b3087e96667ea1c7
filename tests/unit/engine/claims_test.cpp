// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/claims.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>

namespace farandole {
namespace {

using namespace std::chrono_literals;

Signature signature(std::uint64_t count) {
  Signature made;
  made.collective = 3;
  made.dtype = 7;
  made.reduction = 0x82;
  made.algorithm = 11;
  made.root = -1;
  made.count = count;
  return made;
}

// Goal: what is said arrives as it was said, and nothing else is taken for it.
// Method: there and back; then every shorter and one longer message.
TEST(Claims, SurviveTheWay) {
  const std::vector<Claim> said = {{{1, 0xffffffff}, Rank{3}, Rank{27'599}, signature(~0ull)},
                                   {{0x7fffffff, 2}, Rank{27'598}, Rank{0}, signature(0)}};
  const std::string text = encode(said);
  const auto heard = decode_claims(text);
  ASSERT_TRUE(heard);
  ASSERT_EQ(heard->size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ((*heard)[i].id, said[i].id);
    EXPECT_EQ((*heard)[i].first, said[i].first);
    EXPECT_EQ((*heard)[i].from, said[i].from);
    EXPECT_EQ((*heard)[i].signature, said[i].signature);
  }
  const std::size_t each = (text.size() - 1) / 2;
  for (std::size_t size = 0; size < text.size(); ++size) {
    EXPECT_EQ(decode_claims(text.substr(0, size)).has_value(), size > 0 && (size - 1) % each == 0);
  }
  EXPECT_FALSE(decode_claims(text + "x"));
  EXPECT_FALSE(decode_disagreement(text));
}

TEST(Disagreements, SurviveTheWay) {
  const Disagreement said{{4, 5},       Rank{3}, Rank{6}, Rank{7},     signature(8),
                          signature(9), 10,      11,      "no memory", Rank{12}};
  const std::string text = encode(said);
  const auto heard = decode_disagreement(text);
  ASSERT_TRUE(heard);
  EXPECT_EQ(heard->id, said.id);
  EXPECT_EQ(heard->first, said.first);
  EXPECT_EQ(heard->reporter, said.reporter);
  EXPECT_EQ(heard->other, said.other);
  EXPECT_EQ(heard->reported, said.reported);
  EXPECT_EQ(heard->seen, said.seen);
  EXPECT_EQ(heard->reported_bytes, 10u);
  EXPECT_EQ(heard->seen_bytes, 11u);
  EXPECT_EQ(heard->excuse, "no memory");
  EXPECT_EQ(heard->lost, Rank{12});
  const auto simple = decode_disagreement(encode(Disagreement{.excuse = "no memory"}));
  EXPECT_TRUE(simple && !simple->lost);
  for (std::size_t size = 0; size < text.size(); ++size) {
    EXPECT_FALSE(decode_disagreement(text.substr(0, size)));
  }
  EXPECT_FALSE(decode_disagreement(text + "x"));
  EXPECT_FALSE(decode_claims(text));
}

// Goal: a rank that hears for ever of operations that it never starts keeps a bounded number of
// claims, the latest; starting one forgets those before it on that communicator, and no others.
TEST(Claims, AheadAreBoundedAndForgotten) {
  Ahead<Claim> ahead;
  const auto count = static_cast<std::uint32_t>(Ahead<Claim>::kMax);
  for (std::uint32_t i = 0; i < 10 * count; ++i)
    ahead.add({{1, i}, Rank{0}, Rank{0}, signature(i)});
  ASSERT_EQ(ahead.size(), count);
  EXPECT_TRUE(ahead.take({2, 10 * count}).empty());
  ASSERT_EQ(ahead.size(), count);
  const auto now = ahead.take({1, 10 * count - 2});
  ASSERT_EQ(now.size(), 1u);
  EXPECT_EQ(now[0].signature, signature(10 * count - 2));
  ASSERT_EQ(ahead.size(), 1u);
  ahead.add({{3, 0}, Rank{0}, Rank{0}, signature(0)});
  const auto dropped = ahead.keep([](OperationId id) { return id.communicator != 3; });
  ASSERT_EQ(dropped.size(), 1u);
  EXPECT_EQ(dropped[0].id, (OperationId{3, 0}));
  EXPECT_EQ(ahead.take({1, 10 * count - 1}).size(), 1u);
  EXPECT_TRUE(ahead.empty());
}

// Goal: a claim concerns a rank if it is a member and has not come so far yet.
TEST(Claims, ConcernThoseWhoWillStart) {
  std::atomic<std::uint32_t> next{5};
  Progress progress;
  EXPECT_FALSE(progress.knows({9, 5}));
  EXPECT_FALSE(progress.ahead({9, 5}));
  progress.add(9, Rank{2}, next);
  EXPECT_TRUE(progress.knows({9, 0}));
  EXPECT_TRUE(progress.knows({9, 0}, Rank{2}));
  EXPECT_FALSE(progress.knows({9, 0}, Rank{0})) << "another group with that number";
  EXPECT_FALSE(progress.ahead({9, 4}));
  EXPECT_TRUE(progress.ahead({9, 5}));
  next = 6;
  EXPECT_FALSE(progress.ahead({9, 5}));
  EXPECT_FALSE(progress.freed_before({9, 6}, Rank{2}));
  progress.remove(9);
  EXPECT_FALSE(progress.knows({9, 7}));
}

// Goal: what a rank has freed concerns it from the first operation that it has not started, also
// when it has freed many others since; for ever it is not kept.
TEST(Claims, ConcernThoseWhoHaveFreed) {
  std::atomic<std::uint32_t> next{6};
  Progress progress;
  progress.add(9, Rank{2}, next);
  progress.remove(9);
  next = 100;
  for (std::uint32_t number = 10; number < 9 + Progress::kFreedMax; ++number) {
    progress.add(number, Rank{0}, next);
    progress.remove(number);
  }
  EXPECT_FALSE(progress.freed_before({9, 5}, Rank{2}));
  EXPECT_TRUE(progress.freed_before({9, 6}, Rank{2}));
  EXPECT_TRUE(progress.freed_before({9, 7}, Rank{2}));
  EXPECT_FALSE(progress.freed_before({9, 6}, Rank{0})) << "another group with that number";
  progress.add(8, Rank{0}, next);
  progress.remove(8);
  EXPECT_FALSE(progress.freed_before({9, 6}, Rank{2}));
}

// Goal: of 27,600 ranks that stand still because some are late, few make a claim before the first
// one has been heard by all; and the first comes soon, whoever is late.
// Method: whose turn comes within 10 ms, in which a flood reaches everybody, of the first one's; as
// all stand still at once, which is the worst case. Several sets of late ranks, many operations.
TEST(Claims, FewAreMadeBeforeTheFirstIsHeard) {
  constexpr int kRanks = 27'600;
  const std::function<bool(int)> late[] = {
      [](int) { return false; },
      [](int rank) { return rank == 0; },
      [](int rank) { return rank < kRanks / 2; },
      [](int rank) { return rank % 6 != 5; },
      [](int rank) { return rank < kRanks - 100; },
  };
  for (const auto& is_late : late) {
    std::size_t claims = 0;
    constexpr std::uint32_t kOperations = 50;
    for (std::uint32_t sequence = 0; sequence < kOperations; ++sequence) {
      std::vector<std::chrono::nanoseconds> turns;
      for (int rank = 0; rank < kRanks; ++rank) {
        if (is_late(rank)) continue;
        turns.push_back(claims_after({0, sequence}, Rank{rank}, kRanks, kPatienceMax));
      }
      const auto first = std::ranges::min(turns);
      EXPECT_LT(first, 1s);
      claims += static_cast<std::size_t>(
          std::ranges::count_if(turns, [&](auto turn) { return turn - first < 10ms; }));
    }
    EXPECT_LE(claims, 4 * kOperations);
  }
}

}  // namespace
}  // namespace farandole
