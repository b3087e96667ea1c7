// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <functional>
#include <iostream>

#include "schedule/verify/commute.hpp"
#include "unit/algorithms/all_schedules.hpp"

namespace farandole {
namespace {

Schedule without_claims(Schedule schedule) {
  schedule.rotations.clear();
  return schedule;
}

// Goal: the proof by symmetry covers what the proof of every rank does.
// Method: both, for every algorithm with claims over 2 to 24 ranks; equal counts of everything.
TEST(Symmetry, ProvesTheSameAsEveryRankByItself) {
  int compared = 0;
  for (std::int64_t p = 2; p <= 24; ++p) {
    for (const Schedule& schedule : all_schedules(p)) {
      if (commuting_rotations(schedule).rotations.empty()) continue;
      const Result<VerifiedSchedule> by_symmetry = verify(schedule);
      const Result<VerifiedSchedule> of_each = verify(without_claims(schedule));
      ASSERT_TRUE(by_symmetry) << by_symmetry.error().message;
      ASSERT_TRUE(of_each) << of_each.error().message;
      EXPECT_EQ(by_symmetry->proof().rounds, of_each->proof().rounds) << described(schedule);
      EXPECT_EQ(by_symmetry->proof().transfers, of_each->proof().transfers) << described(schedule);
      EXPECT_EQ(by_symmetry->proof().reductions, of_each->proof().reductions)
          << described(schedule);
      ++compared;
    }
  }
  std::cout << compared << " schedules compared\n";
  EXPECT_GT(compared, 100);
}

// One number of one expression, changed by `by`.
using Visit = std::function<bool(Expr&)>;

bool visit(std::optional<Span>& span, const Visit& body) {
  return span && (body(span->first) || body(span->count) || body(span->shape));
}

bool visit(std::vector<Item>& items, const Visit& body) {
  for (Item& item : items) {
    if (auto* round = std::get_if<Round>(&item)) {
      for (Action& action : round->actions) {
        for (Guard& guard : action.when) {
          if (body(guard.value) || body(guard.low) || body(guard.high)) return true;
        }
        if (body(action.peer)) return true;
        for (auto* span : {&action.source, &action.target, &action.operand}) {
          if (visit(*span, body)) return true;
        }
      }
      continue;
    }
    auto loop = std::make_shared<Loop>(*std::get<std::shared_ptr<const Loop>>(item));
    const bool done = visit(loop->body, body);
    item = std::shared_ptr<const Loop>(loop);
    if (done) return true;
  }
  return false;
}

// Changes the `which`-th number of the schedule; false when there are fewer.
bool damage(Schedule& schedule, int which, std::int64_t by) {
  return visit(schedule.items, [&](Expr& expr) {
    std::vector<Expr::Node> nodes = expr.nodes();
    for (Expr::Node& node : nodes) {
      if (node.op != Expr::Op::kConstant || which-- != 0) continue;
      node.value += by;
      expr = Expr::from_nodes(nodes);
      return true;
    }
    return false;
  });
}

// Goal: a damaged schedule does not pass by symmetry if it fails by itself, and the reverse.
// Method: add or subtract one from every number of every schedule with claims.
TEST(Symmetry, AgreesOnDamagedSchedules) {
  int mutants = 0, rejected = 0;
  for (const std::int64_t p : {4, 6, 8, 12}) {
    for (const Schedule& intact : all_schedules(p)) {
      if (commuting_rotations(intact).rotations.empty()) continue;
      for (const std::int64_t by : {-1, 1}) {
        for (int which = 0;; ++which) {
          Schedule mutant = intact;
          if (!damage(mutant, which, by)) break;
          const Result<VerifiedSchedule> of_each = verify(without_claims(mutant));
          const Result<VerifiedSchedule> by_symmetry = verify(mutant);
          EXPECT_EQ(static_cast<bool>(by_symmetry), static_cast<bool>(of_each))
              << described(intact) << ", number " << which << " changed by " << by << ": "
              << (of_each ? by_symmetry.error().message : of_each.error().message);
          ++mutants;
          rejected += !of_each;
        }
      }
    }
  }
  std::cout << mutants << " mutants, " << rejected << " rejected by both\n";
  EXPECT_GT(rejected, mutants / 2);
}

// Goal: a ring over 27,600 ranks is proved, and a damaged one is not.
TEST(Symmetry, ProvesRingsOverAllOfSummit) {
  constexpr std::int64_t kRanks = 27'600;
  for (const Collective collective :
       {Collective::kAllreduce, Collective::kReducescatter, Collective::kAllgather}) {
    Schedule ring = *build_schedule(collective, "ring", kRanks, 0);
    const Result<VerifiedSchedule> verified = verify(ring);
    ASSERT_TRUE(verified) << verified.error().message;
    const std::int64_t halves = collective == Collective::kAllreduce ? 2 : 1;
    EXPECT_EQ(verified->proof().transfers, halves * kRanks * (kRanks - 1));
    int rejected = 0;
    for (const int which : {0, 3, 5, 7}) {
      Schedule mutant = ring;
      ASSERT_TRUE(damage(mutant, which, 1));
      rejected += !verify(mutant);
    }
    EXPECT_GT(rejected, 0);
  }
}

}  // namespace
}  // namespace farandole
