// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "schedule/builder.hpp"
#include "schedule/expand.hpp"

namespace farandole {
namespace {

// Two ranks swap their only chunk and reduce in the order of ranks.
ScheduleBuilder swap_and_reduce() {
  ScheduleBuilder b(Collective::kAllreduce, "swap", 2, 1);
  b.scratch_slots(1);
  const Expr r = b.rank();
  b.round().send(in(0), 1 - r).receive(scratch(0, 0), 1 - r);
  b.round()
      .when(r, 0, 1)
      .reduce(out(0), in(0), scratch(0, 0))
      .always()
      .when(r, 1, 2)
      .reduce(out(0), scratch(0, 0), in(0));
  return b;
}

std::string fault(Schedule schedule, ErrorKind kind = ErrorKind::kInternal) {
  Result<VerifiedSchedule> verified = verify(std::move(schedule));
  if (verified) return "proved";
  EXPECT_EQ(verified.error().kind, kind);
  return verified.error().message;
}

TEST(Verify, ProvesAndCounts) {
  Result<VerifiedSchedule> verified = verify(swap_and_reduce().build());
  ASSERT_TRUE(verified) << verified.error().message;
  EXPECT_EQ(verified->proof().rounds, 2);
  EXPECT_EQ(verified->proof().transfers, 2);
  EXPECT_EQ(verified->proof().reductions, 2);
  EXPECT_EQ(verified->schedule().algorithm, "swap");
}

// Goal: each kind of fault is found, and its message names rank, round and reason.
// Method: one small schedule per kind.
TEST(Verify, NamesRankRoundAndReason) {
  const std::string where = "allreduce swap over 2 ranks: rank 0, round ";
  const std::string at_last = "allreduce swap over 2 ranks: rank 1, round ";  // it runs first
  {
    ScheduleBuilder b(Collective::kAllreduce, "swap", 2, 1);
    const Expr r = b.rank();
    b.round().send(in(0), 1 - r);
    b.round().receive_reduce(out(0), in(0), 1 - r);
    EXPECT_EQ(fault(std::move(b).build()),
              where +
                  "0: deadlock: rank 0 waits in round 0 for the receive of rank 1 on lane 0; rank "
                  "1 waits in round 0 for the receive of rank 0 on lane 0;");
  }
  {
    ScheduleBuilder b = swap_and_reduce();
    b.round().when(b.rank(), 0, 1).signal(1);
    EXPECT_EQ(fault(std::move(b).build()),
              where +
                  "2: deadlock: rank 0 waits in round 2 for the receive of rank 1, which has "
                  "finished, on lane 0;");
  }
  {
    ScheduleBuilder b(Collective::kAllreduce, "swap", 2, 1);
    const Expr r = b.rank();
    b.round().send(in(0), 1 - r).receive_reduce(out(0), in(0), 1 - r);
    EXPECT_EQ(fault(std::move(b).build()),
              "allreduce swap over 2 ranks: rank 1, round 1: ends with another order of operands "
              "than rank 0");
  }
  {
    ScheduleBuilder b = swap_and_reduce();
    b.round().reduce(out(0), in(0), out(0));
    EXPECT_EQ(fault(std::move(b).build()),
              at_last +
                  "2: reduces chunk 0 from 1 rank(s) in in[0] with chunk 0 from 2 rank(s): not "
                  "the same chunk, or a contribution counted twice");
  }
  {
    ScheduleBuilder b = swap_and_reduce();
    b.scratch_slots(2);
    b.round().copy(out(0), scratch(1, 0));
    EXPECT_EQ(fault(std::move(b).build()),
              at_last + "2: reads scratch[1 as 0], of which nothing has written part 0");
  }
  {
    ScheduleBuilder b = swap_and_reduce();
    b.round().send(out(0), b.rank()).receive(scratch(0, 0), b.rank());
    EXPECT_EQ(fault(std::move(b).build()), where + "2: action 0 has peer 0");
  }
  {
    ScheduleBuilder b = swap_and_reduce();
    b.round().copy(in(0), out(0));
    EXPECT_EQ(fault(std::move(b).build()), where + "2: action 0 writes in[0]");
  }
  {
    ScheduleBuilder b = swap_and_reduce();
    b.round().copy(out(0), scratch(1, 0));
    EXPECT_EQ(fault(std::move(b).build()),
              where + "2: action 0 uses scratch[1 as 0], outside its 1 chunks");
  }
  {
    ScheduleBuilder b = swap_and_reduce();
    b.round().copy(out(0), scratch(0, 1));
    EXPECT_EQ(fault(std::move(b).build()),
              where + "2: action 0 uses scratch[0 as 1], whose shape is not that of its data");
  }
  {
    ScheduleBuilder b = swap_and_reduce();
    b.round().copy(out(0), Span{Buffer::kOut, 0, 1, 1});
    EXPECT_EQ(fault(std::move(b).build()),
              where + "2: action 0 uses out[0 as 1], whose shape is not that of its data");
  }
  {
    ScheduleBuilder b(Collective::kAllgather, "shift", 3, 3);
    b.round().copy(out(1, 2), out(0, 2));
    EXPECT_EQ(fault(std::move(b).build()),
              "allgather shift over 3 ranks: rank 0, round 0: action 0 reads out[0, 2] while "
              "writing a shifted out[1, 2]");
  }
  {
    ScheduleBuilder b = swap_and_reduce();
    b.round().signal(1 - b.rank()).signal(1 - b.rank());
    EXPECT_EQ(fault(std::move(b).build()), where + "2: action 1 is the second send on lane 0");
  }
}

// Goal: actions of one round are in conflict unless a chain orders them, in place too.
// Method: the same two actions side by side, chained, and apart only when out of place.
TEST(Verify, FindsConflictsWithinARound) {
  const auto last_round = [](auto&& add) {
    ScheduleBuilder b = swap_and_reduce();
    add(b.round());
    return fault(std::move(b).build());
  };
  EXPECT_EQ(last_round([](RoundBuilder round) {
              round.copy(scratch(0, 0), out(0)).copy(out(0), scratch(0, 0));
            }),
            "allreduce swap over 2 ranks: rank 0, round 2: action 1 reads scratch[0], written in "
            "parallel");
  EXPECT_EQ(last_round([](RoundBuilder round) {
              round.copy(scratch(0, 0), out(0)).then().copy(out(0), scratch(0, 0));
            }),
            "proved");
  EXPECT_EQ(last_round([](RoundBuilder round) {
              round.copy(scratch(0, 0), out(0)).copy(scratch(0, 0), in(0));
            }),
            "allreduce swap over 2 ranks: rank 0, round 2: action 1 writes scratch[0], used in "
            "parallel");
  EXPECT_EQ(last_round([](RoundBuilder round) {
              round.copy(scratch(0, 0), out(0)).then().copy(scratch(0, 0), in(0));
            }),
            "proved");
  ScheduleBuilder b(Collective::kAllreduce, "swap", 2, 1);
  const Expr r = b.rank();
  b.round()
      .send(in(0), 1 - r)
      .when(r, 0, 1)
      .receive_reduce(out(0), in(0), 1 - r)
      .always()
      .when(r, 1, 2)
      .receive_reduce_first(out(0), in(0), 1 - r);
  EXPECT_EQ(fault(std::move(b).build()),
            "allreduce swap over 2 ranks, in place: rank 0, round 0: action 1 writes out[0], used "
            "in parallel");
}

TEST(Verify, FindsUnequalLengths) {
  ScheduleBuilder b(Collective::kBroadcast, "shift", 2, 2);
  const Expr r = b.rank();
  b.round().when(r, 0, 1).copy(out(0, 2), in(0, 2));
  b.round().when(r, 0, 1).send(out(0), 1).always().when(r, 1, 2).receive(out(1), 0);
  EXPECT_EQ(fault(std::move(b).build()),
            "broadcast shift over 2 ranks: rank 1, round 1: rank 0 sends out[0], but out[1] is not "
            "equally long");
  ScheduleBuilder slot(Collective::kBroadcast, "slot", 1, 2);
  slot.scratch_slots(1);
  slot.round().copy(scratch(0, 0), in(0));
  slot.round().copy(out(0, 2), in(0, 2));
  slot.round().copy(out(1), scratch(0, 1));
  EXPECT_EQ(fault(std::move(slot).build()),
            "broadcast slot over 1 ranks: rank 0, round 2: reads scratch[0 as 1], of which part 0 "
            "holds chunk 0 from 1 rank(s)");
  ScheduleBuilder zero(Collective::kBroadcast, "empty", 2, 1);
  zero.round().when(r, 0, 1).signal(1).always().when(r, 1, 2).receive(out(0), 0);
  EXPECT_EQ(fault(std::move(zero).build()),
            "broadcast empty over 2 ranks: rank 1, round 0: rank 0 sends zero bytes, received as "
            "out[0]");
}

// Goal: knowledge travels with messages only forward: the sender learns nothing.
// Method: a barrier in which rank 0 tells rank 1, and one in which both tell each other.
TEST(Verify, ABarrierNeedsWordFromEveryRank) {
  ScheduleBuilder one_way(Collective::kBarrier, "one_way", 2, 0);
  const Expr r = one_way.rank();
  one_way.round().when(r, 0, 1).signal(1).always().when(r, 1, 2).await(0);
  EXPECT_EQ(fault(std::move(one_way).build()),
            "barrier one_way over 2 ranks: rank 0, round 1: leaves the barrier without knowing "
            "that rank 1 entered");
  ScheduleBuilder both(Collective::kBarrier, "both", 2, 0);
  both.round().signal(1 - r).await(1 - r);
  EXPECT_EQ(fault(std::move(both).build()), "proved");
}

TEST(Verify, RefusesWhatItCannotExpand) {
  const auto ranks = [](std::int64_t count) {
    ScheduleBuilder b(Collective::kBarrier, "large", count, 0);
    b.round().signal((b.rank() + 1) % count).await((b.rank() - 1) % count);
    return std::move(b).build();
  };
  EXPECT_EQ(fault(ranks(0)), "schedule large over 0 ranks has no ranks");
  EXPECT_EQ(fault(ranks(-1)), "schedule large over -1 ranks has no ranks");
  EXPECT_NE(fault(ranks(std::int64_t{1} << 40), ErrorKind::kUnsupported), "proved");
  ScheduleBuilder loops(Collective::kBarrier, "long", 2, 0);
  loops.loop(std::int64_t{1} << 40, [&](Expr) { loops.loop(std::int64_t{1} << 40, [](Expr) {}); });
  EXPECT_NE(fault(std::move(loops).build(), ErrorKind::kUnsupported), "proved");
  ScheduleBuilder outside(Collective::kBarrier, "outside", 2, 0);
  outside.round().signal(Expr::loop(0)).await(Expr::loop(0));
  EXPECT_EQ(fault(std::move(outside).build()),
            "barrier outside: loops nest deeper than 4, or an index uses a counter outside its "
            "loop");
  ScheduleBuilder root(Collective::kBroadcast, "root", 2, 1);
  root.root(2);
  EXPECT_EQ(fault(std::move(root).build()), "schedule root over 2 ranks has root 2");
}

// Goal: guards that drop actions keep chains whole.
// Method: drop the head, the middle and the tail of a chain of three.
TEST(Expand, ChainsCloseOverDroppedActions) {
  for (std::int64_t dropped = 0; dropped < 3; ++dropped) {
    ScheduleBuilder b(Collective::kAllgather, "chain", 1, 1);
    RoundBuilder round = b.round();
    round.copy(out(0), in(0));
    for (std::int64_t i = 0; i < 3; ++i) {
      if (i > 0) round.then();
      round.always();
      if (i == dropped) round.when(1, 0, 1);
      round.copy(out(0), in(0));
    }
    const Expanded expanded = expand(std::move(b).build());
    const ConcreteRound& steps = expanded.ranks[0][0];
    ASSERT_EQ(steps.size(), 3u);
    EXPECT_FALSE(steps[1].after_previous);
    EXPECT_TRUE(steps[2].after_previous);
  }
}

}  // namespace
}  // namespace farandole
