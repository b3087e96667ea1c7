// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>

#include "simulation/world.hpp"
#include "unit/base/full_run.hpp"

namespace farandole::simulation {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr std::uint64_t kSample = 40;  // of each kind of fault
#else
constexpr std::uint64_t kSample = 250;
#endif

std::string replay(const Scenario& scenario) {
  return "simulation --seed " + std::to_string(scenario.seed) + " --fault " + name(scenario.fault);
}

// Goal: the shipped engines keep their promises (world.hpp) through every kind of fault. Method:
// seeded runs of 2 to 64 ranks on a simulated network; 1,000,000 with FARANDOLE_TEST_FULL=1.
class Faults : public testing::TestWithParam<Fault> {};

TEST_P(Faults, LeaveNoWrongResultNoHangAndTheRightRankNamed) {
  const std::uint64_t count = full_run() ? 83'334 : kSample;
  const std::uint64_t first = 1 + count * static_cast<std::uint64_t>(GetParam());
  std::printf("seeds %lu to %lu\n", first, first + count - 1);
  std::uint64_t failures = 0;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const Scenario scenario = draw_scenario(seed, std::nullopt, GetParam());
    const Report report = run(scenario);
    failures += report.failures;
    ASSERT_EQ(report.violation, "") << replay(scenario);
  }
  const bool harmless =
      GetParam() == Fault::kNone || GetParam() == Fault::kPause || GetParam() == Fault::kOutage;
  EXPECT_EQ(failures == 0, harmless) << failures << " operations failed";
}

const auto kFaults = testing::Values(Fault::kNone, Fault::kDeath, Fault::kPause, Fault::kSilence,
                                     Fault::kLate, Fault::kMismatch, Fault::kExcuse, Fault::kFreed,
                                     Fault::kOutage, Fault::kStall, Fault::kBroken, Fault::kMixed);
std::string name_of(const testing::TestParamInfo<Fault>& each) {
  return name(each.param);
}
INSTANTIATE_TEST_SUITE_P(Simulation, Faults, kFaults, name_of);

// Goal: the same with the control plane that ships, over virtual sockets: its handshakes, links,
// questions, events, the start of all, and that it closes everything when a rank leaves.
class FaultsWithShippedControl : public testing::TestWithParam<Fault> {};

TEST_P(FaultsWithShippedControl, AreHandledTheSameWay) {
  const std::uint64_t count = full_run() ? 5000 : kSample / 5;
  const std::uint64_t first = 2'000'000 + count * static_cast<std::uint64_t>(GetParam());
  std::printf("seeds %lu to %lu\n", first, first + count - 1);
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    Scenario scenario = draw_scenario(seed, std::nullopt, GetParam());
    scenario.shipped_control = true;
    ASSERT_EQ(run(scenario).violation, "") << replay(scenario) << " --shipped";
  }
}

INSTANTIATE_TEST_SUITE_P(Simulation, FaultsWithShippedControl, kFaults, name_of);

// Goal: a rank that has said its last word on a link, and waits for the other end's, sleeps, also
// once it would have been time for a beat. Method: the seed that found its loop spinning.
TEST(Simulation, NoBeatIsDueOnALinkThatIsFinished) {
  Scenario scenario = draw_scenario(18, std::nullopt, Fault::kNone);
  scenario.shipped_control = true;
  EXPECT_EQ(run(scenario).violation, "");
}

// Goal: a link that is made in the place of one to a dead rank carries all events, also those that
// were on their way when that rank died. Method: a seed in which one of three ranks dies, and that
// was red with a link that begins without any.
TEST(Simulation, ANewLinkCarriesAllEvents) {
  Scenario scenario = draw_scenario(8981, std::nullopt, Fault::kMixed);
  scenario.shipped_control = true;
  EXPECT_EQ(run(scenario).violation, "");
}

// Goal: a seed replays a run event by event. Method: two runs of some seeds, with a hash of all
// turns and outcomes.
TEST(Simulation, ASeedReplaysItsRun) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const Report first = run(draw_scenario(seed)), second = run(draw_scenario(seed));
    EXPECT_EQ(first.trace, second.trace) << "simulation --seed " << seed;
    EXPECT_EQ(first.operations, second.operations);
  }
}

// Goal: the largest worlds run too. Method: one seed of every fault with 64 ranks.
TEST(Simulation, SixtyFourRanks) {
  for (int fault = 0; fault < kFaultCount; ++fault) {
    const Scenario scenario = draw_scenario(7, 64, static_cast<Fault>(fault));
    EXPECT_EQ(run(scenario).violation, "") << replay(scenario) << " --ranks 64";
  }
}

}  // namespace
}  // namespace farandole::simulation
