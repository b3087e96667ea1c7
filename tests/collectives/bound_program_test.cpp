// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/bound_program.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "frontend/call.hpp"
#include "schedule/passes/overlap.hpp"
#include "unit/algorithms/all_schedules.hpp"

namespace farandole {
namespace {

struct Way {
  std::size_t count;
  bool in_place;
  Flow flow;
};

/// What the passes did to the programs that were bound.
struct Tally {
  int whole = 0, behind = 0, riding = 0, joined = 0;
};

Group group_of(std::int64_t size, std::int64_t rank) {
  Group group;
  group.self = Rank{static_cast<int>(rank)};
  for (int r = 0; r < size; ++r) group.world_ranks.push_back(Rank{r});
  return group;
}

/// In place: reducescatter and scatter write chunk `rank` of `in`, allgather and gather read that
/// of `out`.
std::int64_t in_offset(const Arguments& arguments, const Group& group) {
  const Extent extents = extent(arguments, group);
  const auto bytes =
      static_cast<std::int64_t>((extents.in_place_offset * size_of(arguments.dtype)).value());
  return extents.in > extents.out ? -bytes : bytes;
}

void bind(const VerifiedSchedule& verified, std::int64_t rank, const Way& way, Tally& tally) {
  const Schedule& schedule = verified.schedule();
  const Group group = group_of(schedule.rank_count, rank);
  const Arguments arguments{.collective = schedule.collective,
                            .count = Count{way.count},
                            .dtype = DType::kFloat32,
                            .root = Rank{static_cast<int>(schedule.root)}};
  auto program = std::make_shared<const Program>(specialize(verified, rank));
  Layouts layout = layouts(arguments, group, program->chunk_count);
  Binding binding{program, layout.in, layout.out, layout.chunks, DType::kFloat32};
  if (way.in_place) binding.in_offset = in_offset(arguments, group);
  const auto bound = BoundProgram::bind(binding, [&](int) { return way.flow; });
  ASSERT_TRUE(bound) << bound.error().message << "\n"
                     << described(schedule) << ", rank " << rank << ", count " << way.count
                     << (way.in_place ? ", in place" : "");
  tally.whole += (*bound)->is_whole();
  for (const BoundRound& round : (*bound)->rounds()) {
    const auto actions = (*bound)->actions().subspan(round.first, round.count);
    if (!actions.empty() && actions.front().step != actions.back().step) ++tally.joined;
    std::uint32_t posted = 0;
    for (auto i = round.posted_first; i != BoundAction::kNone; i = (*bound)->actions()[i].next) {
      ASSERT_TRUE(round.first <= i && i < round.first + round.count);
      ++posted;
    }
    EXPECT_EQ(posted, round.count) << described(schedule);
    for (const BoundAction& action : actions) {
      tally.behind += action.behind != BoundAction::kNone;
      tally.riding += action.rides != BoundAction::kNone;
    }
  }
}

// Goal: of no algorithm do the passes let two actions run at once that spoil each other.
// Method: bind() proves it for itself; every algorithm with several options, on every rank, for
// short and long calls, in place and not, over transports whose transfers follow each other and
// over others. The counts at the end show that the passes had something to do.
TEST(BoundProgram, EveryAlgorithmCanBeBound) {
  Tally tally;
  for (const std::int64_t p : {1, 2, 3, 4, 5, 8, 12}) {
    for (Schedule& schedule : all_schedules(p)) {
      const auto verified = verify(std::move(schedule));
      ASSERT_TRUE(verified);
      const bool can_be_in_place = verified->schedule().collective != Collective::kAlltoall;
      for (std::int64_t rank = 0; rank < p; ++rank) {
        for (const std::size_t count : {0, 7, 100'003, 3'000'000}) {
          for (const bool in_place : {false, true}) {
            if (in_place && !can_be_in_place) continue;
            for (const Flow& flow : {Flow{}, Flow{true, Bytes{0}}, Flow{true, Bytes{4096}}}) {
              bind(*verified, rank, {count, in_place, flow}, tally);
              if (HasFatalFailure()) return;
            }
          }
        }
      }
    }
  }
  EXPECT_GT(tally.whole, 1000);
  for (const int done : {tally.behind, tally.riding, tally.joined}) {
    EXPECT_GT(done, 100);
  }
}

// Goal: rounds of a run too long to be kept, which are bound one by one, are right as well.
TEST(BoundProgram, LongRunsAreBoundRoundByRound) {
  const auto verified = verify(built(Collective::kAllreduce, "ring", 200));
  ASSERT_TRUE(verified);
  for (const std::int64_t rank : {0, 57, 199}) {
    const Group group = group_of(200, rank);
    const Arguments arguments{.collective = Collective::kAllreduce, .count = Count{1'000'003}};
    const auto program = std::make_shared<const Program>(specialize(*verified, rank));
    Layouts layout = layouts(arguments, group, program->chunk_count);
    Binding binding{program, layout.in, layout.out, layout.chunks, DType::kUInt8, 0};
    const auto bound = BoundProgram::bind(binding, [](int) { return Flow{true, Bytes{0}}; });
    ASSERT_TRUE(bound);
    EXPECT_FALSE((*bound)->is_whole());
    EXPECT_TRUE((*bound)->actions().empty());
    Binder binder = (*bound)->binder();
    std::vector<BoundAction> actions;
    int rounds = 0;
    for (BoundRound round; binder.next(actions, round) == Binder::Step::kRound; ++rounds) {
      finish((*bound)->terms(), actions, round);
      const auto right = check_overlaps((*bound)->terms(), actions, {&round, 1});
      ASSERT_TRUE(right) << right.error().message;
      actions.clear();
    }
    EXPECT_EQ(rounds, 2 * 199);
  }
}

}  // namespace
}  // namespace farandole
