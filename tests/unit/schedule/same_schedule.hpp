// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/schedule.hpp"

namespace farandole {

inline bool same_items(const std::vector<Item>& a, const std::vector<Item>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].index() != b[i].index()) return false;
    if (std::holds_alternative<Round>(a[i])) {
      if (std::get<Round>(a[i]) != std::get<Round>(b[i])) return false;
      continue;
    }
    const Loop& x = *std::get<std::shared_ptr<const Loop>>(a[i]);
    const Loop& y = *std::get<std::shared_ptr<const Loop>>(b[i]);
    if (x.count != y.count || !same_items(x.body, y.body)) return false;
  }
  return true;
}

/// Equal in every field, loops compared by what is in them.
inline bool same_schedule(const Schedule& a, const Schedule& b) {
  return a.collective == b.collective && a.algorithm == b.algorithm &&
         a.rank_count == b.rank_count && a.root == b.root && a.chunk_count == b.chunk_count &&
         a.scratch_slots == b.scratch_slots && a.lane_count == b.lane_count && a.order == b.order &&
         a.rotations == b.rotations && a.stages == b.stages && same_items(a.items, b.items);
}

}  // namespace farandole
