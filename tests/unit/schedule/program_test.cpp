// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/program.hpp"

#include <gtest/gtest.h>

#include "schedule/builder.hpp"
#include "unit/schedule/program_stepper.hpp"

namespace farandole {
namespace {

using Kind = Program::Instruction::Kind;

VerifiedSchedule verified(Schedule schedule) {
  Result<VerifiedSchedule> result = verify(std::move(schedule));
  EXPECT_TRUE(result) << result.error().message;
  return *std::move(result);
}

// Rank 0 sends its only chunk to each of the others in turn, in one loop, guarded by its counter.
Schedule linear_broadcast(std::int64_t p) {
  ScheduleBuilder b(Collective::kBroadcast, "linear", p, 1);
  const Expr r = b.rank();
  b.loop(p, [&](const Expr& s) {
    b.round()
        .when(s, 1, p)
        .when(r, 0, 1)
        .send(in(0), s)
        .always()
        .when(s, r, r + 1)
        .when(r, 1, p)
        .receive(out(0), 0)
        .always()
        .when(s, 0, 1)
        .when(r, 0, 1)
        .then()
        .copy(out(0), in(0));
  });
  return std::move(b).build();
}

// Goal: a program holds one rank's actions, with what depends on the rank settled.
// Method: the broadcast above, at its root and at another rank.
TEST(Program, KeepsOnlyWhatTheRankDoes) {
  const VerifiedSchedule schedule = verified(linear_broadcast(4));
  const Program root = specialize(schedule, 0);
  ASSERT_EQ(root.instructions.size(), 3u);
  EXPECT_EQ(root.instructions[0], (Program::Instruction{Kind::kLoopBegin, 0, 0, 4, 3, 0}));
  EXPECT_EQ(root.instructions[1], (Program::Instruction{Kind::kRound, 0, 2, 1, 0, 1}));
  EXPECT_EQ(root.instructions[2], (Program::Instruction{Kind::kLoopEnd, 0, 0, 4, 1, 0}));
  EXPECT_EQ(root.actions_per_round_max, 2u);
  EXPECT_EQ(root.peers, (std::vector<std::int64_t>{1, 2, 3}));
  ASSERT_EQ(root.actions[0].when.size(), 1u);  // the guard on the rank is settled
  EXPECT_EQ(root.actions[0].when[0].value.text(), "s");

  const Program leaf = specialize(schedule, 2);
  ASSERT_EQ(leaf.actions.size(), 1u);
  EXPECT_EQ(leaf.actions[0].kind, Action::Kind::kReceive);
  EXPECT_EQ(leaf.peers, (std::vector<std::int64_t>{0}));
  EXPECT_EQ(leaf.rank, 2);
  EXPECT_EQ(leaf.rank_count, 4);
  EXPECT_EQ(leaf.collective, Collective::kBroadcast);
  EXPECT_EQ(leaf.algorithm, "linear");
}

// Goal: with an order, a rank gets the part of its position, and its peers are ranks.
TEST(Program, FollowsTheOrder) {
  const VerifiedSchedule plain = verified(linear_broadcast(4));
  Schedule ordered = plain.schedule();
  ordered.order = {2, 0, 3, 1};
  const VerifiedSchedule schedule = verified(std::move(ordered));
  const Program root = specialize(schedule, 2);
  EXPECT_EQ(root.position, 0);
  EXPECT_EQ(root.rank, 2);
  EXPECT_EQ(root.actions, specialize(plain, 0).actions);
  EXPECT_EQ(root.peers, (std::vector<std::int64_t>{0, 1, 3}));
  const Program leaf = specialize(schedule, 3);
  EXPECT_EQ(leaf.position, 2);
  EXPECT_EQ(leaf.actions, specialize(plain, 2).actions);
  EXPECT_EQ(leaf.peers, (std::vector<std::int64_t>{2}));
  EXPECT_EQ(leaf.rank_at(0), 2);
}

// Goal: a program says which of its reductions have taken in all ranks, and nothing at all where
// that changes from one iteration to the next.
// Method: sums over 3 ranks, by two reductions that follow each other, and by one in a loop.
TEST(Program, KnowsWhichReductionsAreTheLast) {
  ScheduleBuilder chained(Collective::kReducescatter, "chained", 3, 3);
  const Expr r = chained.rank();
  chained.round()
      .send(in((r + 1) % 3), (r + 1) % 3)
      .receive_reduce(out(0), in(r), (r - 1) % 3)
      .lane(1)
      .send(in((r + 2) % 3), (r + 2) % 3)
      .then()
      .receive_reduce(out(0), out(0), (r - 2) % 3);
  Schedule schedule = std::move(chained).build();
  std::vector<Action>& actions = std::get<Round>(schedule.items[0]).actions;
  std::swap(actions[1], actions[2]);  // both sends first, so that the reductions are one chain
  const VerifiedSchedule once = verified(std::move(schedule));
  for (std::int64_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(specialize(once, rank).completes, (std::vector<bool>{false, false, false, true}));
  }

  ScheduleBuilder looped(Collective::kAllreduce, "looped", 3, 3);
  looped.scratch_slots(1);
  looped.loop(2, [&](const Expr& s) {
    looped.round().when(s, 0, 1).copy(out((r - s) % 3), in((r - s) % 3));
    looped.round()
        .send(out((r - s) % 3), (r + 1) % 3)
        .receive_reduce(out((r - s - 1) % 3), in((r - s - 1) % 3), (r - 1) % 3);
  });
  looped.loop(2, [&](const Expr& s) {
    looped.round().send(out((r - s + 1) % 3), (r + 1) % 3).receive(out((r - s) % 3), (r - 1) % 3);
  });
  EXPECT_TRUE(specialize(verified(std::move(looped).build()), 0).completes.empty());
}

// Goal: stepping a program does what expand() says, with loops in loops and chains whose links
// come and go with the counters.
TEST(Program, StepsAsExpanded) {
  ScheduleBuilder b(Collective::kAllgather, "nested", 3, 3);
  const Expr r = b.rank();
  b.round().copy(out(r), in(0));
  b.loop(2, [&](const Expr& s) {
    b.loop(3, [&](const Expr& t) {
      RoundBuilder round = b.round();
      round.when(s, 0, 1).when(t, 0, 2);
      round.copy(out((r + t + 1) % 3), out(r));
      for (std::int64_t link = 0; link < 3; ++link) {
        round.always().when((t + s + link) % 3, 1, 3).then().copy(out((r + 1) % 3), out(r));
      }
    });
    b.loop(2, [&](const Expr&) { b.round().when(r, 5, 6).copy(out(0), in(0)); });
  });
  // At ranks 1 and 2 the chain starts with its second link.
  b.round()
      .copy(out((r + 1) % 3), out(r))
      .when(r, 0, 1)
      .copy(out((r + 2) % 3), out(r))
      .always()
      .then()
      .copy(out((r + 2) % 3), out(r));
  b.loop(2, [&](const Expr& s) {
    b.round().send(out((r - s) % 3), (r + 1) % 3).receive(out((r - s - 1) % 3), (r - 1) % 3);
  });
  const VerifiedSchedule schedule = verified(std::move(b).build());
  const Expanded expanded = expand(schedule.schedule());
  for (std::size_t rank = 0; rank < 3; ++rank) {
    const Program program = specialize(schedule, static_cast<std::int64_t>(rank));
    EXPECT_EQ(ProgramStepper(program).run(), without_empty(expanded.ranks[rank]));
    // The loop of rounds that nobody takes part in is gone.
    const auto loops = std::count_if(program.instructions.begin(), program.instructions.end(),
                                     [](const auto& at) { return at.kind == Kind::kLoopBegin; });
    EXPECT_EQ(loops, 3);
  }
}

}  // namespace
}  // namespace farandole
