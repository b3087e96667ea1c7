// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <set>

#include "unit/algorithms/all_schedules.hpp"
#include "unit/schedule/program_stepper.hpp"

namespace farandole {
namespace {

// Goal: what the engine steps is what was proved, for every algorithm.
// Method: step each rank's program and compare with the expanded steps; collect its peers anew.
TEST(AlgorithmProgram, StepsAsExpandedAtEveryRank) {
  for (const std::int64_t p : {1, 2, 3, 4, 5, 8, 11, 16, 17}) {
    for (const Schedule& schedule : all_schedules(p)) {
      const Expanded expanded = expand(schedule);
      const Result<VerifiedSchedule> verified = verify(schedule);
      ASSERT_TRUE(verified) << verified.error().message;
      for (std::int64_t rank = 0; rank < p; ++rank) {
        const Program program = specialize(*verified, rank);
        const auto rank_at = [&](std::int64_t position) -> std::int64_t {
          return schedule.order.empty() ? position
                                        : schedule.order[static_cast<std::size_t>(position)];
        };
        std::int64_t position = 0;
        while (rank_at(position) != rank) ++position;
        const auto rounds = without_empty(expanded.ranks[static_cast<std::size_t>(position)]);
        ASSERT_EQ(ProgramStepper(program).run(), rounds) << described(schedule);
        std::set<std::int64_t> peers;
        for (const ConcreteRound& round : rounds) {
          for (const ConcreteAction& action : round) {
            if (action.kind != Action::Kind::kLocal) peers.insert(rank_at(action.peer));
          }
        }
        EXPECT_EQ(program.peers, std::vector<std::int64_t>(peers.begin(), peers.end()));
      }
    }
  }
}

}  // namespace
}  // namespace farandole
