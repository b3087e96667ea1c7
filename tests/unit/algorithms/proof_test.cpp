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

std::int64_t ceil_log(std::int64_t radix, std::int64_t p) {
  std::int64_t result = 0;
  for (std::int64_t power = 1; power < p; power *= radix) ++result;
  return result;
}

std::int64_t ceil_lg(std::int64_t p) {
  return ceil_log(2, p);
}

Proof proof_of(Collective collective, std::string_view spec, std::int64_t p,
               std::int64_t root = 0) {
  Result<VerifiedSchedule> verified = verify(built(collective, spec, p, root));
  EXPECT_TRUE(verified) << verified.error().message;
  return verified ? verified->proof() : Proof{};
}

// Goal: every algorithm is right at every number of ranks, from every kind of root and with every
// kind of option.
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
  EXPECT_GT(schedule_count, 9'000u);
}

// Goal: every hierarchy is right.
// Method: every ordered factorization of 1 to 64 ranks, each with four choices of kinds.
TEST(Proof, HoldsForEveryHierarchyUpTo64Ranks) {
  std::size_t schedule_count = 0;
  for (const AlgorithmInfo* info : algorithms()) {
    if (!has_option(*info, "layers")) continue;
    for (std::int64_t p = 1; p <= 64; ++p) {
      for (const std::vector<std::int64_t>& sizes : factorizations(p)) {
        for (const char* kind : {"ring", "direct", "halving", "mixed"}) {
          const std::string spec = std::string(info->name) + ":" + layers_option(sizes, kind);
          const auto verified = verify(built(info->collective, spec, p));
          ASSERT_TRUE(verified) << spec << ": " << verified.error().message;
          ++schedule_count;
        }
      }
    }
  }
  std::cout << schedule_count << " hierarchies proved\n";
}

// Goal: the schedules that keep one order of operands are right, too.
TEST(Proof, HoldsForDeterministicSchedulesUpTo64Ranks) {
  for (const AlgorithmInfo* info : algorithms()) {
    if (!reduces(info->collective)) continue;
    for (std::int64_t p = 1; p <= 64; ++p) {
      for (const std::int64_t root : roots_of(info->collective, p)) {
        const auto verified = verify(built(info->collective, info->name, p, root, true));
        ASSERT_TRUE(verified) << verified.error().message;
      }
    }
  }
}

// Goal: the proof still comes in time at the sizes beyond the exhaustive range.
// Method: a prime, a power of two and its neighbours, for every algorithm.
TEST(Proof, HoldsAtLargerSizes) {
  for (const std::int64_t p : {127, 128, 129, 251}) {
    for (const AlgorithmInfo* info : algorithms()) {
      const std::int64_t root = has_root(info->collective) ? p - 1 : 0;
      const auto verified = verify(built(info->collective, info->name, p, root));
      ASSERT_TRUE(verified) << verified.error().message;
    }
  }
}

// Goal: the costs in the algorithms' headers are what the schedules spend.
// Method: compare rounds and messages of the proof with the formulas.
TEST(Proof, CountsTheRoundsAndMessagesOfReductions) {
  using enum Collective;
  for (const std::int64_t p : {2, 3, 4, 5, 8, 13, 16}) {
    const std::int64_t lg = ceil_lg(p + 1) - 1, m = std::int64_t{1} << lg;
    const bool folds = m != p;
    EXPECT_EQ(proof_of(kAllreduce, "ring", p).rounds, 2 * (p - 1));
    EXPECT_EQ(proof_of(kAllreduce, "ring", p).transfers, 2 * p * (p - 1));
    EXPECT_EQ(proof_of(kAllreduce, "ring", p).reductions, p * (p - 1));
    EXPECT_EQ(proof_of(kAllreduce, "ring_bidirectional", p).rounds, 2 * (p - 1));
    EXPECT_EQ(proof_of(kAllreduce, "ring_bidirectional", p).transfers, 4 * p * (p - 1));
    EXPECT_EQ(proof_of(kAllreduce, "recursive_doubling", p).rounds, lg + lg % 2 + (folds ? 2 : 0));
    EXPECT_EQ(proof_of(kAllreduce, "recursive_doubling", p).transfers, m * lg + 2 * (p - m));
    EXPECT_EQ(proof_of(kAllreduce, "rabenseifner", p).rounds, 2 * lg + (folds ? 2 : 0));
    EXPECT_EQ(proof_of(kAllreduce, "direct", p).rounds, 2);
    EXPECT_EQ(proof_of(kAllreduce, "one_shot", p).rounds, p);
    EXPECT_EQ(proof_of(kAllreduce, "one_shot", p).transfers, p * (p - 1));
    EXPECT_EQ(proof_of(kAllreduce, "reduce_broadcast", p).transfers, 2 * (p - 1));
    EXPECT_EQ(proof_of(kAllreduce, "reduce_broadcast:radix=3", p).rounds, 2 * ceil_log(3, p));
    EXPECT_EQ(proof_of(kAllreduce, "double_binary_tree:chunks=5", p).transfers, 20 * (p - 1));
    EXPECT_LE(proof_of(kAllreduce, "double_binary_tree:chunks=5", p).rounds,
              2 * (5 + ceil_lg(p) - 1));
    EXPECT_EQ(proof_of(kReduce, "knomial:radix=3", p, 1).rounds, ceil_log(3, p));
    EXPECT_EQ(proof_of(kReduce, "knomial", p, 1).transfers, p - 1);
    EXPECT_EQ(proof_of(kReduce, "direct", p, p - 1).transfers, p - 1);
    EXPECT_EQ(proof_of(kReduce, "pipelined_chain:chunks=6", p).rounds, p == 2 ? 6 : 7);
    EXPECT_EQ(proof_of(kReduce, "rabenseifner", p, 1).rounds, 2 * lg + (folds ? 1 : 0));
    EXPECT_EQ(proof_of(kReduce, "rabenseifner", p).transfers, m * lg + m - 1 + p - m);
    EXPECT_EQ(proof_of(kReduce, "double_binary_tree:chunks=5", p).transfers, 10 * (p - 1));
    EXPECT_EQ(proof_of(kReducescatter, "ring", p).rounds, p - 1);
    EXPECT_EQ(proof_of(kReducescatter, "pairwise", p).rounds, p - 1);
    EXPECT_EQ(proof_of(kReducescatter, "halving", p).rounds, lg + (folds ? 2 : 0));
    EXPECT_EQ(proof_of(kReducescatter, "direct", p).rounds, 1);
  }
}

TEST(Proof, CountsTheRoundsAndMessagesOfMoves) {
  using enum Collective;
  for (const std::int64_t p : {2, 3, 4, 5, 8, 13, 16}) {
    EXPECT_EQ(proof_of(kAllgather, "ring", p).rounds, p - 1);
    EXPECT_EQ(proof_of(kAllgather, "bruck", p).rounds, ceil_lg(p) + p + 1);
    EXPECT_EQ(proof_of(kAllgather, "bruck", p).transfers, p * ceil_lg(p));
    EXPECT_EQ(proof_of(kAllgather, "direct", p).rounds, 2);
    EXPECT_EQ(proof_of(kBroadcast, "direct", p, 1).transfers, p - 1);
    EXPECT_EQ(proof_of(kBroadcast, "chain", p, 1).transfers, p - 1);
    EXPECT_EQ(proof_of(kBroadcast, "binomial", p).rounds, ceil_lg(p));
    EXPECT_EQ(proof_of(kBroadcast, "binomial", p).transfers, p - 1);
    EXPECT_EQ(proof_of(kBroadcast, "knomial:radix=4", p, 1).rounds, ceil_log(4, p) + 1);
    EXPECT_EQ(proof_of(kBroadcast, "knomial", p, 1).transfers, p - 1);
    EXPECT_EQ(proof_of(kBroadcast, "scatter_allgather", p).transfers, (p - 1) + (p - 1) * (p - 1));
    EXPECT_EQ(proof_of(kBroadcast, "pipelined_chain:chunks=6", p).rounds, p == 2 ? 6 : 7);
    EXPECT_EQ(proof_of(kBroadcast, "pipelined_chain:chunks=6", p).transfers, 6 * (p - 1));
    EXPECT_EQ(proof_of(kBroadcast, "double_binary_tree:chunks=5", p).transfers, 10 * (p - 1));
    EXPECT_EQ(proof_of(kGather, "direct", p, 1).transfers, p - 1);
    EXPECT_EQ(proof_of(kGather, "binomial", p).rounds, ceil_lg(p));
    EXPECT_EQ(proof_of(kGather, "binomial", p).transfers, p - 1);
    EXPECT_EQ(proof_of(kScatter, "direct", p, 1).transfers, p - 1);
    EXPECT_EQ(proof_of(kScatter, "binomial", p).transfers, p - 1);
    EXPECT_EQ(proof_of(kAlltoall, "pairwise", p).transfers, p * (p - 1));
    EXPECT_EQ(proof_of(kAlltoall, "bruck", p).transfers, p * ceil_lg(p));
    EXPECT_EQ(proof_of(kAlltoall, "direct", p).rounds, 1);
    EXPECT_EQ(proof_of(kBarrier, "dissemination", p).rounds, ceil_lg(p));
    EXPECT_EQ(proof_of(kBarrier, "dissemination", p).transfers, p * ceil_lg(p));
  }
}

// Goal: a schedule over any number of ranks is a few lines; only what is called direct, and lasts
// for a limited number of ranks, has an action per rank.
// Method: compare the actions at the ends of the scale with a multiple of lg p.
TEST(Proof, SchedulesDoNotGrowWithRanks) {
  for (const AlgorithmInfo* info : algorithms()) {
    if (info->name == "direct" || info->ranks_max < 27'600) continue;
    const std::size_t actions = action_count(built(info->collective, info->name, 27'600).items);
    EXPECT_LE(actions, 20 * static_cast<std::size_t>(ceil_lg(27'600)))
        << name(info->collective) << " " << info->name;
  }
}

TEST(Registry, NamesWhatItHasWhenAskedForAnotherAlgorithm) {
  const auto missing = find_algorithm(Collective::kAllgather, "binomial");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().kind, ErrorKind::kInvalidArgument);
  EXPECT_EQ(missing.error().message,
            "no algorithm \"binomial\" for allgather; there is ring, bruck, hierarchical, direct");
  for (const AlgorithmInfo* info : algorithms()) {
    EXPECT_EQ(*find_algorithm(info->collective, info->name), info);
    const Schedule schedule = built(info->collective, info->name, 3);
    EXPECT_EQ(schedule.algorithm, info->name);
    EXPECT_EQ(schedule.collective, info->collective);
  }
}

}  // namespace
}  // namespace farandole
