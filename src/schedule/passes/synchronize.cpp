// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/passes/synchronize.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "schedule/builder.hpp"

namespace farandole {
namespace {

/// Between two ranks: data has gone one way only, so one message goes the other way.
void answer_data(ScheduleBuilder& b, const Schedule& schedule) {
  const bool root_sent =
      schedule.collective == Collective::kBroadcast || schedule.collective == Collective::kScatter;
  const std::int64_t from = root_sent ? 1 - schedule.root : schedule.root;
  const std::int64_t to = 1 - from;
  const Expr r = b.rank();
  b.round().when(r, from, from + 1).signal(to).always().when(r, to, to + 1).await(from);
}

void disseminate(ScheduleBuilder& b, std::int64_t p) {
  const Expr r = b.rank();
  for (std::int64_t d = 1; d < p; d *= 2) b.round().signal((r + d) % p).await((r - d) % p);
}

}  // namespace

Schedule synchronized(Schedule schedule) {
  ScheduleBuilder b(schedule.collective, schedule.algorithm, schedule.rank_count, 0);
  if (schedule.rank_count == 2 && has_root(schedule.collective)) {
    answer_data(b, schedule);
  } else {
    disseminate(b, schedule.rank_count);
  }
  Schedule rounds = std::move(b).build();
  const auto stage = static_cast<std::int32_t>(schedule.stages.size()) - 1;
  for (Item& item : rounds.items) std::get<Round>(item).stage = std::max(stage, 0);
  std::ranges::move(rounds.items, std::back_inserter(schedule.items));
  return schedule;
}

}  // namespace farandole
