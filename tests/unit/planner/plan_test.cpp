// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "planner/plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/registry.hpp"
#include "unit/planner/costs.hpp"

namespace farandole {
namespace {

constexpr double kKiB = 1024, kMiB = 1024 * kKiB;

std::string best(Collective collective, double bytes, std::int64_t ranks, std::int64_t hosts,
                 bool shared_memory) {
  const std::int64_t each = ranks / hosts;
  Levels levels(usual_machine(each, hosts, shared_memory),
                {.rank_count = ranks, .ranks_per_host = each});
  const std::string spec = choose(plan(collective, bytes, levels)).spec;
  return spec.substr(0, spec.find(':'));
}

// Goal: whatever is chosen exists for so many ranks. Method: every collective, on one host and on
// many, sizes from 0 to 4 GiB; all candidates are in order.
TEST(Plan, NamesWhatExistsFastestFirst) {
  for (int i = 0; i < kCollectiveCount; ++i) {
    const auto collective = static_cast<Collective>(i);
    for (const std::int64_t ranks : {1, 2, 3, 6, 64, 1025, 27'600}) {
      const std::int64_t each = ranks % 6 == 0 ? 6 : 1;
      Levels levels(usual_machine(each, ranks / each, true),
                    {.rank_count = ranks, .ranks_per_host = each});
      for (double bytes = 0; bytes <= 4096 * kMiB; bytes = 64 * bytes + 1) {
        const auto candidates = plan(collective, bytes, levels);
        ASSERT_FALSE(candidates.empty());
        EXPECT_TRUE(std::ranges::is_sorted(candidates, {}, &Candidate::seconds));
        for (const Candidate& candidate : candidates) {
          const auto found =
              find_algorithm(collective, candidate.spec.substr(0, candidate.spec.find(':')));
          ASSERT_TRUE(found) << found.error().message;
          EXPECT_LE(ranks, (*found)->ranks_max) << candidate.spec;
          if (ranks > 64) continue;
          const auto schedule = build_schedule(collective, candidate.spec, ranks, 0);
          EXPECT_TRUE(schedule) << schedule.error().message;
        }
      }
    }
  }
}

// Goal: where predictions tell nothing apart, what reads in place goes first, then what needs one
// stream between neighbours if there are streams at all, then one at a time; where they do tell,
// or between equals, the fastest.
TEST(Plan, TiesGoToTheLeastDemanding) {
  bool in_memory = false;
  const auto chosen = [&](const std::vector<std::pair<const char*, double>>& predicted, Hop hop,
                          double on_wires) {
    std::vector<Candidate> candidates;
    for (const auto& [spec, seconds] : predicted) {
      candidates.push_back(
          {spec, seconds, {{{.name = "all", .hop = hop, .bytes = on_wires * seconds}}}, in_memory});
    }
    return choose(candidates).spec;
  };
  const std::vector<std::pair<const char*, double>> broadcasts = {
      {"double_binary_tree:chunks=8", 1.0},
      {"hierarchical:layers=4/2", 1.02},
      {"binomial", 1.03},
      {"pipelined_chain:chunks=8", 1.06},
      {"direct", 1.08}};
  EXPECT_EQ(chosen(broadcasts, Hop::kRack, 0.9), "pipelined_chain:chunks=8");
  EXPECT_EQ(chosen(broadcasts, Hop::kRack, 0.1), "binomial");
  EXPECT_EQ(chosen({{"ring", 1.0}, {"direct", 1.06}}, Hop::kHost, 0.9), "direct");
  EXPECT_EQ(chosen({{"ring", 1.0}, {"direct", 1.06}}, Hop::kRack, 0.9), "ring");
  EXPECT_EQ(chosen({{"direct", 1.0}, {"recursive_doubling", 1.0}}, Hop::kRack, 0.1),
            "recursive_doubling");
  EXPECT_EQ(chosen({{"recursive_doubling", 1.0}, {"rabenseifner", 1.01}}, Hop::kRack, 0.9),
            "recursive_doubling");
  EXPECT_EQ(chosen({{"rabenseifner", 1.0}, {"ring", 1.05}}, Hop::kRack, 0.9), "ring");
  EXPECT_EQ(chosen({{"knomial:radix=4", 1.0}, {"ring", 1.05}}, Hop::kHost, 0.9), "ring");
  in_memory = true;
  EXPECT_EQ(chosen({{"knomial:radix=4", 1.0}, {"ring", 1.05}}, Hop::kHost, 0.9), "knomial:radix=4");
  EXPECT_EQ(chosen({{"knomial:radix=4", 1.0}, {"direct", 1.05}}, Hop::kHost, 0.9), "direct");
  in_memory = false;
  EXPECT_EQ(chosen({{"two_level", 1.0}, {"ring", 1.08}}, Hop::kRack, 0.9), "two_level");
}

// Goal: a broadcast to one rank is one message, of any size, wherever that rank is.
TEST(Plan, TwoRanksNeedNoTree) {
  for (const double bytes : {4.0, 64 * kKiB, 256 * kKiB, 4 * kMiB, 256 * kMiB}) {
    for (const std::int64_t hosts : {1, 2}) {
      EXPECT_EQ(best(Collective::kBroadcast, bytes, 2, hosts, false),
                hosts == 1 ? "direct" : "binomial")
          << bytes;
    }
  }
}

std::string best_on_cores(std::int64_t cores, bool shared_memory, Collective collective,
                          double bytes) {
  Levels levels(usual_machine(4, 1, shared_memory, cores), {.rank_count = 4, .ranks_per_host = 4});
  return choose(plan(collective, bytes, levels)).spec;
}

// Goal: ranks that share cores take fewer rounds, since each is a change of who runs.
TEST(Plan, SharedCoresPayForRounds) {
  const auto allreduce = [](std::int64_t cores) {
    return best_on_cores(cores, true, Collective::kAllreduce, 2 * kKiB);
  };
  EXPECT_EQ(allreduce(4), allreduce(0));
  EXPECT_EQ(allreduce(4), "recursive_doubling");
  EXPECT_EQ(allreduce(2), "one_shot");
  EXPECT_EQ(best_on_cores(2, true, Collective::kAllreduce, 16 * kKiB), "direct") << "fewer bytes";
}

// Goal: who is sent something in shared memory reads it there, so the root sends to all at once.
TEST(Plan, BroadcastsInMemoryAreFlat) {
  for (const std::int64_t cores : {0, 2}) {
    for (const double bytes : {64 * kKiB, 4 * kMiB, 64 * kMiB}) {
      EXPECT_EQ(best_on_cores(cores, true, Collective::kBroadcast, bytes), "knomial:radix=4");
      EXPECT_NE(best_on_cores(cores, false, Collective::kBroadcast, bytes), "knomial:radix=4");
    }
  }
}

// Goal: over sockets fewer messages per rank, since a core makes the system calls of several.
TEST(Plan, SharedCoresPayForMessages) {
  EXPECT_EQ(best_on_cores(4, false, Collective::kAllgather, 64), "direct");
  EXPECT_EQ(best_on_cores(2, false, Collective::kAllgather, 64), "bruck");
  EXPECT_EQ(best_on_cores(2, false, Collective::kReducescatter, 16 * kKiB), "halving");
  EXPECT_EQ(best_on_cores(2, false, Collective::kBroadcast, 2 * kKiB), "binomial");
  EXPECT_EQ(best_on_cores(2, false, Collective::kAllgather, 256 * kKiB), "bruck");
  EXPECT_EQ(best_on_cores(4, false, Collective::kAllgather, 256 * kKiB), "ring");
}

// Goal: over sockets no pieces where they bring nothing: who passes a message on copies it twice,
// and shared cores handle each piece.
TEST(Plan, PassingOnThroughSocketsTakesTwice) {
  for (const std::int64_t cores : {2, 4}) {
    EXPECT_EQ(best_on_cores(cores, false, Collective::kBroadcast, kMiB), "binomial");
  }
  EXPECT_EQ(best_on_cores(2, false, Collective::kBroadcast, 4 * kMiB), "binomial");
}

// Goal: few steps for short messages, few bytes for long ones, reading in place where possible.
TEST(Plan, FollowsSizeAndMemory) {
  const auto allreduce = [](double bytes, std::int64_t hosts, bool shared_memory) {
    return best(Collective::kAllreduce, bytes, 8, hosts, shared_memory);
  };
  EXPECT_EQ(allreduce(8, 1, true), "one_shot");
  EXPECT_NE(allreduce(2 * kKiB + 4, 1, true), "one_shot");
  EXPECT_EQ(allreduce(256 * kMiB, 1, true), "direct");
  EXPECT_EQ(allreduce(8, 8, true), "recursive_doubling");
  EXPECT_EQ(allreduce(8, 1, false), "recursive_doubling");
  EXPECT_EQ(best(Collective::kAllreduce, 8, 3, 1, true), "one_shot");
  EXPECT_NE(best(Collective::kAllreduce, 8, 3, 1, false), "one_shot");
  const auto between_hosts = [](Collective collective, double bytes) {
    return best(collective, bytes, 16, 16, true);
  };
  EXPECT_EQ(between_hosts(Collective::kBroadcast, kKiB), "binomial");
  EXPECT_EQ(between_hosts(Collective::kAlltoall, kKiB), "bruck");
  EXPECT_EQ(between_hosts(Collective::kAlltoall, 64 * kMiB), "pairwise");
  EXPECT_EQ(between_hosts(Collective::kReducescatter, kKiB), "halving");
}

}  // namespace
}  // namespace farandole
