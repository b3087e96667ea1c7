// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "model/max_min.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace farandole {
namespace {

FlowLinks flows_of(const std::vector<std::vector<std::int32_t>>& rows) {
  FlowLinks flows;
  for (const auto& row : rows) {
    flows.links.insert(flows.links.end(), row.begin(), row.end());
    flows.close_flow();
  }
  return flows;
}

TEST(MaxMin, SharesAKnownExample) {
  // [Bertsekas92] figure 6.13 in kind: a long flow is held back by the narrow link, and what it
  // leaves on the wide one goes to the others.
  const std::vector<double> capacities = {9, 2};
  MaxMin solver(capacities);
  std::vector<double> rates;
  solver.solve(flows_of({{0, 1}, {0}, {0}, {1}, {}}), rates);
  EXPECT_DOUBLE_EQ(rates[0], 1);
  EXPECT_DOUBLE_EQ(rates[1], 4);
  EXPECT_DOUBLE_EQ(rates[2], 4);
  EXPECT_DOUBLE_EQ(rates[3], 1);
  EXPECT_TRUE(std::isinf(rates[4]));
}

// Goal: rates are max-min fair whatever the flows.
// Method: the definition: no link carries more than it can, and every flow has a link that is full
// and on which nobody has more than it.
TEST(MaxMin, EveryFlowHasABottleneck) {
  std::mt19937 random(7);
  std::vector<double> capacities(12);
  for (double& capacity : capacities) capacity = 1 + static_cast<double>(random() % 50);
  MaxMin solver(capacities);
  for (int round = 0; round < 300; ++round) {
    std::vector<std::vector<std::int32_t>> rows(1 + random() % 30);
    for (auto& row : rows) {
      for (std::int32_t link = 0; link < 12; ++link) {
        if (random() % 4 == 0) row.push_back(link);
      }
      if (row.empty()) row.push_back(0);
    }
    std::vector<double> rates, used(capacities.size(), 0), most(capacities.size(), 0);
    solver.solve(flows_of(rows), rates);
    for (std::size_t flow = 0; flow < rows.size(); ++flow) {
      for (const std::int32_t link : rows[flow]) {
        const auto l = static_cast<std::size_t>(link);
        used[l] += rates[flow];
        most[l] = std::max(most[l], rates[flow]);
      }
    }
    for (std::size_t l = 0; l < used.size(); ++l) EXPECT_LE(used[l], capacities[l] * (1 + 1e-9));
    for (std::size_t flow = 0; flow < rows.size(); ++flow) {
      EXPECT_TRUE(std::any_of(rows[flow].begin(), rows[flow].end(),
                              [&](std::int32_t link) {
                                const auto l = static_cast<std::size_t>(link);
                                return used[l] >= capacities[l] * (1 - 1e-9) &&
                                       rates[flow] >= most[l] * (1 - 1e-9);
                              }))
          << "round " << round << " flow " << flow;
    }
  }
}

}  // namespace
}  // namespace farandole
