// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <iostream>

#include "schedule/text.hpp"
#include "unit/algorithms/all_schedules.hpp"

namespace farandole {
namespace {

std::size_t action_count(const std::vector<Item>& items) {
  std::size_t count = 0;
  for (const Item& item : items) {
    const auto* round = std::get_if<Round>(&item);
    count += round ? round->actions.size()
                   : action_count(std::get<std::shared_ptr<const Loop>>(item)->body);
  }
  return count;
}

std::int64_t ceil_lg(std::int64_t p) {
  std::int64_t result = 0;
  while ((std::int64_t{1} << result) < p) ++result;
  return result;
}

Proof proof_of(const AlgorithmInfo& info, std::int64_t p) {
  Result<VerifiedSchedule> verified = verify(info.build({p, 0}));
  EXPECT_TRUE(verified) << verified.error().message;
  return verified->proof();
}

const AlgorithmInfo& find(Collective collective, std::string_view name) {
  return **find_algorithm(collective, name);
}

// Goal: every algorithm is right at every number of ranks and from every kind of root.
// Method: exhaust 1 to 64 ranks with the verifier, which mutation_test.cpp puts to the test.
TEST(Proof, HoldsForEveryAlgorithmUpTo64Ranks) {
  std::size_t schedule_count = 0, transfer_count = 0;
  for (std::int64_t p = 1; p <= 64; ++p) {
    for (Schedule& schedule : all_schedules(p)) {
      const std::string what = described(schedule);
      Result<VerifiedSchedule> verified = verify(std::move(schedule));
      ASSERT_TRUE(verified) << what << ": " << verified.error().message;
      ++schedule_count;
      transfer_count += static_cast<std::size_t>(verified->proof().transfers);
    }
  }
  std::cout << schedule_count << " schedules, " << transfer_count << " transfers proved\n";
  EXPECT_EQ(schedule_count, 64u * 10 + 45 + 55 * 3);
}

// Goal: the proof still comes in time at the sizes beyond the exhaustive range.
// Method: a prime, a power of two and its neighbours, for every algorithm.
TEST(Proof, HoldsAtLargerSizes) {
  for (const std::int64_t p : {127, 128, 129, 251}) {
    for (const AlgorithmInfo* info : algorithms()) {
      Result<VerifiedSchedule> verified = verify(info->build({p, p - 1}));
      ASSERT_TRUE(verified) << verified.error().message;
    }
  }
}

// Goal: the costs in the algorithms' headers are what the schedules spend.
// Method: compare rounds and messages of the proof with the formulas.
TEST(Proof, CountsTheRoundsAndMessagesOfTheFormulas) {
  using enum Collective;
  for (const std::int64_t p : {2, 3, 4, 5, 8, 13, 16}) {
    const std::int64_t lg = ceil_lg(p + 1) - 1, m = std::int64_t{1} << lg;
    const bool folds = m != p;
    EXPECT_EQ(proof_of(find(kAllreduce, "ring"), p).rounds, 2 * (p - 1));
    EXPECT_EQ(proof_of(find(kAllreduce, "ring"), p).transfers, 2 * p * (p - 1));
    EXPECT_EQ(proof_of(find(kAllreduce, "ring"), p).reductions, p * (p - 1));
    EXPECT_EQ(proof_of(find(kAllreduce, "ring_bidirectional"), p).rounds, 2 * (p - 1));
    EXPECT_EQ(proof_of(find(kAllreduce, "ring_bidirectional"), p).transfers, 4 * p * (p - 1));
    EXPECT_EQ(proof_of(find(kAllreduce, "recursive_doubling"), p).rounds,
              lg + lg % 2 + (folds ? 2 : 0));
    EXPECT_EQ(proof_of(find(kAllreduce, "recursive_doubling"), p).transfers, m * lg + 2 * (p - m));
    EXPECT_EQ(proof_of(find(kAllreduce, "rabenseifner"), p).rounds, 2 * lg + (folds ? 2 : 0));
    EXPECT_EQ(proof_of(find(kAllreduce, "direct"), p).rounds, 2);
    EXPECT_EQ(proof_of(find(kReducescatter, "ring"), p).rounds, p - 1);
    EXPECT_EQ(proof_of(find(kReducescatter, "direct"), p).rounds, 1);
    EXPECT_EQ(proof_of(find(kAllgather, "ring"), p).rounds, p - 1);
    EXPECT_EQ(proof_of(find(kAllgather, "direct"), p).rounds, 2);
    EXPECT_EQ(proof_of(find(kBroadcast, "binomial"), p).rounds, ceil_lg(p));
    EXPECT_EQ(proof_of(find(kBroadcast, "binomial"), p).transfers, p - 1);
    EXPECT_EQ(proof_of(find(kBarrier, "dissemination"), p).rounds, ceil_lg(p));
    EXPECT_EQ(proof_of(find(kBarrier, "dissemination"), p).transfers, p * ceil_lg(p));
  }
}

// Goal: a ring over any number of ranks is a few lines.
// Method: count the actions of the schedules at 5 and at 27,600 ranks.
TEST(Proof, RingsDoNotGrowWithRanks) {
  using enum Collective;
  for (const auto& [collective, name] : {std::pair{kAllreduce, "ring"},
                                         {kAllreduce, "ring_bidirectional"},
                                         {kReducescatter, "ring"},
                                         {kAllgather, "ring"}}) {
    const AlgorithmInfo& info = find(collective, name);
    EXPECT_EQ(action_count(info.build({27'600, 0}).items), action_count(info.build({5, 0}).items));
  }
}

TEST(Registry, NamesWhatItHasWhenAskedForAnotherAlgorithm) {
  const auto missing = find_algorithm(Collective::kAllgather, "binomial");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().kind, ErrorKind::kInvalidArgument);
  EXPECT_EQ(missing.error().message,
            "no algorithm \"binomial\" for allgather; there is ring, direct");
  for (const AlgorithmInfo* info : algorithms()) {
    EXPECT_EQ(*find_algorithm(info->collective, info->name), info);
    EXPECT_EQ(info->build({3, 0}).algorithm, info->name);
    EXPECT_EQ(info->build({3, 0}).collective, info->collective);
  }
}

}  // namespace
}  // namespace farandole
