// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "simulator/simulate.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <numeric>
#include <random>

#include "schedule/builder.hpp"
#include "unit/algorithms/all_schedules.hpp"
#include "unit/simulator/machines.hpp"

namespace farandole {
namespace {

constexpr double kBytes = 1e6;

Simulator simulator(Machine machine, std::int64_t ranks, Routing routing = Routing::kIdeal) {
  auto network = Network::create(std::move(machine), ranks, routing);
  EXPECT_TRUE(network) << network.error().message;
  return Simulator(*std::move(network));
}

Simulation run(Simulator& simulator, const Schedule& schedule, SimulationPath path,
               double bytes = kBytes) {
  const SimulatedCall call{.schedule = &schedule, .bytes = bytes};
  auto result = simulator.run({&call, 1}, {.path = path});
  EXPECT_TRUE(result) << schedule.algorithm << ": " << result.error().message;
  return result ? *std::move(result) : Simulation{};
}

bool is_power_of_two(std::int64_t p) {
  return std::has_single_bit(static_cast<std::uint64_t>(p));
}

double rounds_of_doubling(std::int64_t p) {
  return static_cast<double>(std::bit_width(static_cast<std::uint64_t>(p - 1)));
}

// A closed form for p ranks: starts of messages, and message sizes on the wire, in kBytes.
struct Form {
  Collective collective;
  const char* algorithm;
  double (*starts)(std::int64_t p);
  double (*sizes)(std::int64_t p);
  bool (*holds)(std::int64_t p);
};
using P = std::int64_t;
double number(P p) {
  return static_cast<double>(p);
}
double share(P p) {
  return number(p - 1) / number(p);
}
bool always(P) {
  return true;
}

// The costs of docs/algorithms.md, without reductions.
const Form kForms[] = {
    {Collective::kAllreduce, "ring", [](P p) { return 2 * number(p - 1); },
     [](P p) { return 2 * share(p); }, always},
    {Collective::kAllreduce, "recursive_doubling", rounds_of_doubling, rounds_of_doubling,
     is_power_of_two},
    {Collective::kAllreduce, "rabenseifner", [](P p) { return 2 * rounds_of_doubling(p); },
     [](P p) { return 2 * share(p); }, is_power_of_two},
    {Collective::kAllreduce, "reduce_broadcast:radix=2",
     [](P p) { return 2 * rounds_of_doubling(p); }, [](P p) { return 2 * rounds_of_doubling(p); },
     always},
    {Collective::kAllreduce, "direct", [](P) { return 2.0; }, [](P p) { return 2 * share(p); },
     always},
    {Collective::kAlltoall, "direct", [](P) { return 1.0; }, share, always},
    {Collective::kBroadcast, "direct", [](P p) { return number(p - 1); },
     [](P p) { return number(p - 1); }, always},
    {Collective::kReduce, "direct", [](P p) { return number(p - 1); },
     [](P p) { return number(p - 1); }, always},
    {Collective::kBroadcast, "chain", [](P p) { return number(p - 1); },
     [](P p) { return number(p - 1); }, always},
    {Collective::kBroadcast, "binomial", rounds_of_doubling, rounds_of_doubling, always},
    {Collective::kReduce, "binomial", rounds_of_doubling, rounds_of_doubling, always},
    {Collective::kBroadcast, "pipelined_chain:chunks=16", [](P p) { return number(16 + p - 2); },
     [](P p) { return number(16 + p - 2) / 16; }, always},
    {Collective::kReduce, "pipelined_chain:chunks=16", [](P p) { return number(16 + p - 2); },
     [](P p) { return number(16 + p - 2) / 16; }, always},
    {Collective::kBroadcast, "scatter_allgather",
     [](P p) { return rounds_of_doubling(p) + number(p - 1); }, [](P p) { return 2 * share(p); },
     is_power_of_two},
    {Collective::kReducescatter, "ring", [](P p) { return number(p - 1); }, share, always},
    {Collective::kReducescatter, "halving", rounds_of_doubling, share, is_power_of_two},
    {Collective::kReducescatter, "pairwise", [](P p) { return number(p - 1); }, share, always},
    {Collective::kAllgather, "ring", [](P p) { return number(p - 1); }, share, always},
    {Collective::kAllgather, "bruck", rounds_of_doubling, share, always},
    {Collective::kAlltoall, "pairwise", [](P p) { return number(p - 1); }, share, always},
    {Collective::kAlltoall, "bruck", rounds_of_doubling,
     [](P p) { return rounds_of_doubling(p) / 2; }, is_power_of_two},
    {Collective::kGather, "direct", [](P p) { return number(p - 1); }, share, always},
    {Collective::kScatter, "direct", [](P p) { return number(p - 1); }, share, always},
    {Collective::kGather, "binomial", rounds_of_doubling, share, is_power_of_two},
    {Collective::kScatter, "binomial", rounds_of_doubling, share, is_power_of_two},
    {Collective::kBarrier, "dissemination", rounds_of_doubling, [](P) { return 0.0; }, always},
};

// Ranks along a chain meet in rounds of different numbers.
bool has_rounds(const Form& form) {
  return std::string_view(form.algorithm).find("chain") == std::string_view::npos;
}

// Goal: where nothing is shared, simulated time is the closed form of docs/algorithms.md.
// Method: all sizes to 64 on a crossbar, on both paths, to 1e-9.
TEST(Simulate, UncontendedTimesAreTheClosedForms) {
  for (P p = 2; p <= 64; ++p) {
    Simulator crossed = simulator(crossbar(p), p);
    for (const Form& form : kForms) {
      if (!form.holds(p)) continue;
      const Schedule schedule = built(form.collective, form.algorithm, p);
      const double expected = form.starts(p) * kAlpha + form.sizes(p) * kBytes / kRate;
      for (const SimulationPath path : {SimulationPath::kEvents, SimulationPath::kRounds}) {
        if (path == SimulationPath::kRounds && !has_rounds(form)) continue;
        const Simulation result = run(crossed, schedule, path);
        EXPECT_TRUE(result.exact) << form.algorithm << " p=" << p;
        EXPECT_NEAR(result.seconds / expected, 1, 1e-9)
            << name(form.collective) << " " << form.algorithm << " p=" << p << " "
            << kSimulationPathNames[static_cast<int>(path)];
      }
    }
  }
}

// 2(sum p_i - h) alpha + 2 (p-1)/p n beta: every hierarchy of rings moves the same bytes.
TEST(Simulate, UncontendedHierarchiesAreTheClosedForm) {
  for (const P p : {6, 12, 24, 30, 64}) {
    Simulator crossed = simulator(crossbar(p), p);
    for (const auto& sizes : factorizations(p)) {
      const Schedule schedule =
          built(Collective::kAllreduce, "hierarchical:" + layers_option(sizes, "ring"), p);
      const P steps = std::accumulate(sizes.begin(), sizes.end(), P{0}) - std::ssize(sizes);
      const double expected = 2 * number(steps) * kAlpha + 2 * share(p) * kBytes / kRate;
      for (const SimulationPath path : {SimulationPath::kEvents, SimulationPath::kRounds}) {
        EXPECT_NEAR(run(crossed, schedule, path).seconds / expected, 1, 1e-9)
            << layers_option(sizes, "ring");
      }
    }
  }
}

// Goal: what the rounds path calls exact is what the event path finds, to 1e-6.
// Method: every algorithm with several options on machines that share more and more.
void compare_paths(Machine machine, P p, Routing routing, int& exact_count, int& estimates) {
  machine.reduce_seconds_per_byte = 2e-11;
  machine.copy_seconds_per_byte = 1e-11;
  for (HopCost& hop : machine.hops) hop.call = 5e-6, hop.fill_chunks = 0.4, hop.efficiency = 0.8;
  machine.hops[0].ring_rates = {{2, 3e10}, {4, 8.4e10}};
  Simulator both = simulator(std::move(machine), p, routing);
  for (const Schedule& schedule : all_schedules(p)) {
    const SimulatedCall call{.schedule = &schedule, .bytes = kBytes};
    const auto rounds = both.run({&call, 1}, {.path = SimulationPath::kRounds});
    if (!rounds) {
      EXPECT_EQ(rounds.error().kind, ErrorKind::kUnsupported) << rounds.error().message;
      EXPECT_NE(schedule.algorithm.find("chain"), std::string::npos) << schedule.algorithm;
      continue;
    }
    const Simulation events = run(both, schedule, SimulationPath::kEvents);
    EXPECT_EQ(rounds->messages, events.messages) << schedule.algorithm;
    EXPECT_NEAR(rounds->bytes, events.bytes, 1e-6 * events.bytes) << schedule.algorithm;
    if (!rounds->exact) {
      ++estimates;
      continue;
    }
    ++exact_count;
    ASSERT_EQ(rounds->finish_seconds[0].size(), events.finish_seconds[0].size());
    for (std::size_t r = 0; r < events.finish_seconds[0].size(); ++r) {
      ASSERT_NEAR(rounds->finish_seconds[0][r], events.finish_seconds[0][r], 1e-6 * events.seconds)
          << name(schedule.collective) << " " << schedule.algorithm << " p=" << p << " rank " << r;
    }
    ASSERT_EQ(rounds->stages.size(), events.stages.size());
    for (std::size_t s = 0; s < events.stages.size(); ++s) {
      EXPECT_EQ(rounds->stages[s].name, events.stages[s].name);
    }
  }
}

TEST(Simulate, PathsAgreeOnEveryAlgorithmWhereRoundsAreExact) {
  int exact = 0, estimates = 0;
  for (const P p : {1, 2, 3, 5, 8, 12, 16, 33, 64}) {
    compare_paths(crossbar(p), p, Routing::kIdeal, exact, estimates);
    compare_paths(shared_nic((p + 3) / 4), p, Routing::kIdeal, exact, estimates);
    compare_paths(thin_core((p + 3) / 4), p, Routing::kIdeal, exact, estimates);
    compare_paths(thin_core((p + 3) / 4), p, Routing::kStaticHash, exact, estimates);
  }
  std::cout << exact << " exact, " << estimates << " estimated\n";
  EXPECT_GT(exact, 1000);
  EXPECT_GT(estimates, 100);  // or `exact` says nothing
}

// alpha + latency + bytes / (rate * efficiency), a call and a fill at the start of a stage, a
// reduction after each message.
TEST(Simulate, AMessageCostsWhatTheMachineSays) {
  Machine machine = crossbar(2);
  machine.nic_latency = 7e-7;
  machine.reduce_seconds_per_byte = 3e-11;
  machine.hops[1] = {.alpha = 2e-6, .call = 9e-6, .fill_chunks = 0.25, .efficiency = 0.5};
  const double half = kBytes / 2, transfer = half / (kRate * 0.5), start = 2e-6 + 2 * 7e-7;
  const double ring = 9e-6 + 2 * start + 2.25 * transfer + half * 3e-11;
  const Schedule flat = built(Collective::kAllreduce, "ring", 2);
  const Schedule layered = built(Collective::kAllreduce, "hierarchical:layers=2ring", 2);
  machine.hops[1].ring_rates = {{3, 1.0}};  // no ring here
  for (const SimulationPath path : {SimulationPath::kEvents, SimulationPath::kRounds}) {
    Simulator wires = simulator(machine, 2);
    EXPECT_NEAR(run(wires, flat, path).seconds / ring, 1, 1e-12);
    const Simulation staged = run(wires, layered, path);
    EXPECT_NEAR(staged.seconds / ring, 1, 1e-12);
    ASSERT_EQ(staged.stages.size(), 1U);
    EXPECT_EQ(staged.stages[0].name, "allreduce_1");
    Machine measured = machine;
    measured.hops[1].ring_rates = {{2, 2 * kRate}};
    Simulator rated = simulator(measured, 2);
    EXPECT_NEAR(run(rated, flat, path).seconds / (ring - 1.125 * transfer), 1, 1e-12);
  }
}

// The first of two ranks comes late, and works at half the speed.
TEST(Simulate, StragglersHoldOthersUp) {
  Machine machine = crossbar(2);
  machine.reduce_seconds_per_byte = 3e-11;
  Simulator late = simulator(machine, 2);
  const Schedule schedule = built(Collective::kReducescatter, "ring", 2);
  const SimulatedCall call{&schedule, kBytes, {}, {1e-3, 0}};
  const double transfer = 1e-3 + kAlpha + kBytes / 2 / kRate, reduction = kBytes / 2 * 3e-11;
  for (const SimulationPath path : {SimulationPath::kEvents, SimulationPath::kRounds}) {
    const auto result = late.run({&call, 1}, {.path = path, .slow_down = {2, 1}});
    ASSERT_TRUE(result) << result.error().message;
    EXPECT_NEAR(result->finish_seconds[0][0], transfer + 2 * reduction, 1e-15);
    EXPECT_NEAR(result->finish_seconds[0][1], transfer + reduction, 1e-15);
  }
}

// Two broadcasts leave one host by one NIC: each has half of it while both run, by hand.
TEST(Simulate, OverlappingCallsShareLinks) {
  Simulator shared = simulator(shared_nic(2), 8);
  const Schedule schedule = built(Collective::kBroadcast, "binomial", 2);
  const double start = kAlpha + 2e-6, alone = kBytes / kRate;
  const SimulatedCall calls[] = {{&schedule, kBytes, {0, 4}, {}},
                                 {&schedule, kBytes, {1, 5}, {alone / 2, alone / 2}}};
  const auto result = shared.run(calls, {});
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->path, SimulationPath::kEvents);
  EXPECT_NEAR(result->finish_seconds[0][1], start + 1.5 * alone, 1e-12);
  EXPECT_NEAR(result->finish_seconds[1][1], start + 2 * alone, 1e-12);
  ASSERT_FALSE(result->busiest.empty());
  EXPECT_EQ(result->busiest[0].name, "host 0: nic0 -> switch");
  EXPECT_NEAR(result->busiest[0].bytes, 2 * kBytes, 1e-6);
  EXPECT_NEAR(result->busiest[0].utilization, 2 * alone / (start + 2 * alone), 1e-9);
}

// Every layer but the last is two stages: it scatters, and gathers what comes back.
TEST(Simulate, ALayerIsAStageEachWay) {
  Machine machine = crossbar(4);
  machine.hops[1].call = 1e-3;
  Simulator wires = simulator(machine, 4);
  const Schedule layers = built(Collective::kAllreduce, "hierarchical:layers=2ring/2ring", 4);
  for (const SimulationPath path : {SimulationPath::kEvents, SimulationPath::kRounds}) {
    const Simulation staged = run(wires, layers, path);
    ASSERT_EQ(staged.stages.size(), 3U);
    EXPECT_EQ(staged.stages[0].name, "scatter_1");
    EXPECT_EQ(staged.stages[1].name, "allreduce_2");
    EXPECT_EQ(staged.stages[2].name, "gather_1");
    double sum = 0;
    for (const Simulation::Stage& stage : staged.stages) {
      EXPECT_GT(stage.seconds, 1e-3);
      sum += stage.seconds;
    }
    EXPECT_NEAR(sum, staged.seconds, 1e-15);
  }
}

// Goal: receives of a chain come together and are added up one after the other; further messages
// of a round pay overhead, and are slower.
TEST(Simulate, ReceivesInOrderWaitForReductionsOnly) {
  Machine machine = crossbar(4);
  machine.reduce_seconds_per_byte = 3e-11;
  machine.hops[1].overhead = 2e-6;
  machine.hops[1].fan_efficiency = 0.8;
  Simulator wires = simulator(machine, 4);
  const Schedule direct = built(Collective::kReducescatter, "direct", 4);
  const double expected = kAlpha + 2 * 2e-6 + 3 * (kBytes / 4) * (1 / kRate / 0.8 + 3e-11);
  for (const SimulationPath path : {SimulationPath::kEvents, SimulationPath::kRounds}) {
    EXPECT_NEAR(run(wires, direct, path).seconds / expected, 1, 1e-12);
  }
}

// Goal: a message pays for all others of its round, of whatever ranks.
// Method: a tree of 8, whose levels send 1, 2 and 4 messages at once.
TEST(Simulate, CrowdsCostTime) {
  Machine machine = crossbar(8);
  machine.hops[1].crowding = 2e-6;
  Simulator wires = simulator(machine, 8);
  const Schedule tree = built(Collective::kBroadcast, "binomial", 8);
  const double expected = 3 * (kAlpha + kBytes / kRate) + (0 + 1 + 3) * 2e-6;
  for (const SimulationPath path : {SimulationPath::kEvents, SimulationPath::kRounds}) {
    EXPECT_NEAR(run(wires, tree, path).seconds / expected, 1, 1e-12);
  }
}

// Goal: leaping over repeated iterations changes nothing.
// Method: late ranks, whose delay takes many iterations to spread, with and without.
TEST(Simulate, SkippingRepeatsIsExact) {
  Simulator both = simulator(thin_core(25), 100);
  std::vector<double> starts(100, 0.0);
  starts[17] = 4e-4;
  starts[80] = 1e-4;
  for (const char* spec : {"ring", "hierarchical:layers=4/25", "two_level:layers=4/25"}) {
    const Schedule schedule = built(Collective::kAllreduce, spec, 100);
    const SimulatedCall call{&schedule, kBytes, {}, starts};
    const auto skipped = both.run({&call, 1}, {.path = SimulationPath::kRounds});
    const auto all = both.run({&call, 1}, {.path = SimulationPath::kRounds, .skip_repeats = false});
    ASSERT_TRUE(skipped && all);
    EXPECT_EQ(skipped->exact, all->exact) << spec;
    EXPECT_EQ(skipped->messages, all->messages);
    for (std::size_t r = 0; r < 100; ++r) {
      EXPECT_NEAR(skipped->finish_seconds[0][r] / all->finish_seconds[0][r], 1, 1e-12) << spec;
    }
  }
}

TEST(Simulate, ErrorsNameTheArgument) {
  Simulator small = simulator(crossbar(2), 2);
  const Schedule ring = built(Collective::kAllreduce, "ring", 2);
  const auto message = [&](const SimulatedCall& call, const SimulationOptions& options) {
    const auto result = small.run({&call, 1}, options);
    return result ? std::string("no error") : result.error().message;
  };
  EXPECT_EQ(message({&ring, -1}, {}),
            "argument 'bytes' is -1.000000, allowed is a finite number from 0 on.");
  EXPECT_EQ(message({&ring, 1, {0}}, {}), "argument 'ranks' names 1 ranks, the schedule has 2.");
  EXPECT_EQ(message({&ring, 1, {0, 0}}, {}),
            "argument 'ranks' must name each rank once, from 0 to 1.");
  EXPECT_EQ(message({&ring, 1, {}, {0}}, {}),
            "argument 'start_seconds' holds 1 times, allowed are 2 finite ones from 0 on.");
  EXPECT_EQ(message({&ring, 1}, {.slow_down = {1}}),
            "argument 'slow_down' holds 1 factors, allowed are 2 finite ones from 0 on.");
  // Schedules that nobody has verified: a message that nobody receives, and a peer out of range.
  ScheduleBuilder lost(Collective::kBarrier, "lost", 2, 0);
  lost.round().when(lost.rank(), 0, 1).signal(1);
  const Schedule alone = std::move(lost).build();
  ScheduleBuilder far(Collective::kBarrier, "far", 2, 0);
  far.round().signal(far.rank() + 1);
  const Schedule outside = std::move(far).build();
  for (const SimulationPath path : {SimulationPath::kEvents, SimulationPath::kRounds}) {
    EXPECT_EQ(message({&alone, 1}, {.path = path}),
              "schedule \"lost\" never ends: rank 0 sends to rank 1 on lane 0, and nobody meets "
              "it.");
    EXPECT_EQ(message({&outside, 1}, {.path = path}),
              "schedule \"far\": a peer is 2 at a rank; verify() tells which.");
  }
}

}  // namespace
}  // namespace farandole
