// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/expand.hpp"

#include "schedule/steps.hpp"

namespace farandole {

Expanded expand(const Schedule& schedule) {
  Expanded expanded{schedule, {}};
  expanded.header.items.clear();
  expanded.header.rotations.clear();
  expanded.ranks.resize(static_cast<std::size_t>(schedule.rank_count));
  const Covers nothing_turns;
  for (std::int64_t rank = 0; rank < schedule.rank_count; ++rank) {
    Steps steps(schedule, nothing_turns, rank);
    ConcreteRound round;
    while (steps.next(round)) expanded.ranks[static_cast<std::size_t>(rank)].push_back(round);
  }
  return expanded;
}

}  // namespace farandole
