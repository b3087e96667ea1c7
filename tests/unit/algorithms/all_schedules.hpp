// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "algorithms/registry.hpp"

namespace farandole {

/// Every algorithm over rank_count ranks; those with a root from every root up to 9 ranks, from the
/// first, a middle and the last one above.
inline std::vector<Schedule> all_schedules(std::int64_t rank_count) {
  std::vector<Schedule> schedules;
  for (const AlgorithmInfo* info : algorithms()) {
    if (!has_root(info->collective)) {
      schedules.push_back(info->build({rank_count, 0}));
      continue;
    }
    for (std::int64_t root = 0; root < rank_count; ++root) {
      const bool chosen = root == 0 || root == rank_count / 2 || root == rank_count - 1;
      if (rank_count <= 9 || chosen) schedules.push_back(info->build({rank_count, root}));
    }
  }
  return schedules;
}

inline std::string described(const Schedule& schedule) {
  return std::string(name(schedule.collective)) + " " + schedule.algorithm + " over " +
         std::to_string(schedule.rank_count) + " ranks, root " + std::to_string(schedule.root);
}

}  // namespace farandole
