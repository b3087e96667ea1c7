// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "planner/factorizations.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <set>

#include "unit/planner/costs.hpp"

namespace farandole {
namespace {

// Goal: all ordered factorizations, once each. Method: their products, and numbers that are known:
// 2^(k-1) for a power of two, 13 for 30 = 2 3 5 (ordered Bell number), 20 for 24.
TEST(Factorizations, AreAllOnce) {
  for (const auto& [number, count] : std::vector<std::pair<std::int64_t, std::size_t>>{
           {1, 1}, {7, 1}, {24, 20}, {30, 13}, {2048, 1024}}) {
    const auto all = factorizations(number);
    EXPECT_EQ(all.size(), count) << number;
    EXPECT_EQ(std::set(all.begin(), all.end()).size(), count) << number;
    for (const auto& factors : all) {
      EXPECT_EQ(std::accumulate(factors.begin(), factors.end(), std::int64_t{1}, std::multiplies()),
                number);
    }
  }
  EXPECT_EQ(factorizations(12, 4).size(), 5u);  // 2 2 3, 2 3 2, 3 2 2, 3 4, 4 3
  EXPECT_TRUE(factorizations(14, 4).empty());
}

/// Four devices behind two NICs, racks of eight hosts, thinned uplinks.
Machine racks() {
  Machine machine = usual_machine(4, 1024, true);
  machine.hosts_per_rack = 8;
  machine.uplinks = 3;
  machine.uplink_bytes_per_second = machine.nic_bytes_per_second;
  machine.hops[0].call = 5e-6;
  machine.hops[1].call = 100e-6;
  machine.hops[2] = machine.hops[1];
  return machine;
}

// Goal: pruning loses nothing that matters. Method: the exhaustive search, on machines with one
// level and with three, many numbers of ranks and sizes.
TEST(SearchHierarchies, PrunedFindsTheBestOfAll) {
  for (const Machine& machine : {usual_machine(64, 1, true), usual_machine(1, 512, true),
                                 usual_machine(8, 64, true), racks()}) {
    for (const std::int64_t p : {2, 6, 16, 24, 30, 36, 60, 64, 96, 128, 144, 210, 256}) {
      if (p > machine.devices_per_host() * machine.hosts) continue;
      for (const double bytes : {1e3, 1e5, 1e7, 1e9}) {
        Levels levels(machine, {.rank_count = p});
        for (const Collective collective : {Collective::kAllreduce, Collective::kAllgather}) {
          const auto all = search_hierarchies(collective, bytes, levels, {.exhaustive = true});
          const auto some = search_hierarchies(collective, bytes, levels);
          ASSERT_FALSE(some.empty());
          EXPECT_LE(some.front().seconds, all.front().seconds * 1.0000001)
              << p << " ranks, " << bytes << " bytes: " << some.front().spec << ", not "
              << all.front().spec;
        }
      }
    }
  }
}

// Goal: the search keeps to the largest factor that it is given.
TEST(SearchHierarchies, KeepsToTheLargestFactor) {
  Levels levels(racks(), {.rank_count = 256});
  for (const bool exhaustive : {false, true}) {
    const auto found = search_hierarchies(Collective::kAllreduce, 1e8, levels,
                                          {.factor_max = 4, .exhaustive = exhaustive});
    ASSERT_FALSE(found.empty());
    for (const RankedHierarchy& one : found) {
      for (const char* factor : {"8", "16", "32", "64"}) {
        EXPECT_EQ(one.spec.find(factor), std::string::npos) << one.spec;
      }
    }
  }
}

// Goal: what a caller leaves out is not there.
TEST(SearchHierarchies, RingsAlone) {
  Levels levels(racks(), {.rank_count = 64});
  for (const bool exhaustive : {false, true}) {
    const auto found = search_hierarchies(Collective::kAllreduce, 1e8, levels,
                                          {.rings_only = true, .exhaustive = exhaustive});
    ASSERT_FALSE(found.empty());
    for (const RankedHierarchy& one : found) {
      EXPECT_EQ(one.spec.find("direct"), std::string::npos) << one.spec;
      EXPECT_EQ(one.spec.find("halving"), std::string::npos) << one.spec;
    }
  }
}

}  // namespace
}  // namespace farandole
