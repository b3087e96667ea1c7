// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "bindings.hpp"
#include "simulator/coordination.hpp"
#include "simulator/simulate.hpp"
#include "simulator/training.hpp"

namespace nb = nanobind;

namespace farandole::bindings {
namespace {

nb::list simulate(const std::string& design, std::int32_t rank_count, std::int32_t tensor_count,
                  std::uint32_t cache_capacity, int step_count, double latency_us,
                  double overhead_us, double bytes_per_us) {
  const auto known = std::ranges::find(kCoordinationDesigns, design);
  if (known == std::end(kCoordinationDesigns)) {
    raise({ErrorKind::kInvalidArgument,
           "argument 'design' is '" + design + "', allowed are flat, tree and cached."});
  }
  CoordinationScenario scenario;
  scenario.design = static_cast<CoordinationDesign>(known - std::begin(kCoordinationDesigns));
  scenario.rank_count = rank_count;
  scenario.tensor_count = tensor_count;
  scenario.cache_capacity = cache_capacity;
  scenario.network = {latency_us, overhead_us, bytes_per_us};
  auto costs = [&] {
    const nb::gil_scoped_release release;
    return simulate_coordination(scenario, step_count);
  }();
  nb::list rows;
  for (const CoordinationCost& cost : take(std::move(costs))) {
    nb::dict row;
    row["messages"] = cost.messages;
    row["bytes"] = cost.bytes;
    row["message_bytes_max"] = cost.message_bytes_max;
    row["received_by_rank_0"] = cost.received_by_rank_0;
    row["rounds"] = cost.rounds;
    row["seconds"] = cost.seconds;
    rows.append(row);
  }
  return rows;
}

// The value of an enumeration by its position in `names`.
template <class Value, std::size_t count>
Value value_of(const char* argument, const std::string& given, const char* const (&names)[count]) {
  std::string allowed;
  for (std::size_t i = 0; i < count; ++i) {
    if (given == names[i]) return static_cast<Value>(i);
    allowed += (i == 0 ? "" : ", ") + std::string(names[i]);
  }
  raise({ErrorKind::kInvalidArgument, std::string("argument '") + argument + "' is '" + given +
                                          "', allowed are " + allowed + "."});
}

Simulator make_simulator(const Machine& machine, std::int64_t rank_count,
                         const std::vector<std::pair<std::int32_t, std::int32_t>>& placement,
                         const std::string& routing, std::uint64_t seed) {
  const auto way = value_of<Routing>("routing", routing, kRoutingNames);
  if (placement.empty()) return Simulator(take(Network::create(machine, rank_count, way, seed)));
  if (std::ssize(placement) != rank_count) {
    raise({ErrorKind::kInvalidArgument,
           "argument 'placement' names " + std::to_string(placement.size()) +
               " places, argument 'rank_count' is " + std::to_string(rank_count) + "."});
  }
  std::vector<Place> places;
  for (const auto& [host, device] : placement) places.push_back({host, device});
  return Simulator(take(Network::create(machine, std::move(places), way, seed)));
}

nb::dict report(const Simulation& simulation, bool finish) {
  nb::dict result;
  result["seconds"] = simulation.seconds;
  result["exact"] = simulation.exact;
  result["path"] = kSimulationPathNames[static_cast<std::size_t>(simulation.path)];
  result["messages"] = simulation.messages;
  result["bytes"] = simulation.bytes;
  nb::list stages, busiest;
  for (const Simulation::Stage& stage : simulation.stages) {
    nb::dict row;
    row["call"] = stage.call;
    row["name"] = stage.name;
    row["seconds"] = stage.seconds;
    stages.append(row);
  }
  for (const Simulation::LinkUse& link : simulation.busiest) {
    nb::dict row;
    row["name"] = link.name;
    row["bytes"] = link.bytes;
    row["utilization"] = link.utilization;
    busiest.append(row);
  }
  result["stages"] = stages;
  result["busiest"] = busiest;
  if (finish) result["finish_seconds"] = nb::cast(simulation.finish_seconds);
  return result;
}

nb::dict run_calls(Simulator& simulator, const std::vector<SimulatedCall>& calls,
                   const std::string& path, std::vector<double> slow_down,
                   std::size_t busiest_links, bool skip_repeats, bool finish) {
  SimulationOptions options{.path = value_of<SimulationPath>("path", path, kSimulationPathNames),
                            .slow_down = std::move(slow_down),
                            .busiest_links = busiest_links,
                            .skip_repeats = skip_repeats};
  auto simulated = [&] {
    const nb::gil_scoped_release release;
    return simulator.run(calls, options);
  }();
  return report(take(std::move(simulated)), finish);
}

nb::dict simulate_schedule(const Machine& machine, const Schedule& schedule, double bytes,
                           const std::string& path, const std::string& routing,
                           std::uint64_t seed) {
  Simulator simulator = make_simulator(machine, schedule.rank_count, {}, routing, seed);
  return run_calls(simulator, {{&schedule, bytes, {}, {}}}, path, {},
                   SimulationOptions{}.busiest_links, true, false);
}

void make_simulated_call(SimulatedCall* self, const Schedule& schedule, double bytes,
                         std::vector<std::int32_t> ranks, std::vector<double> start_seconds) {
  new (self) SimulatedCall{&schedule, bytes, std::move(ranks), std::move(start_seconds)};
}

using Gradient = TrainingScenario::Gradient;

nb::dict train(const std::vector<Gradient>& gradients, double compute_seconds, double cycle_seconds,
               double control_seconds, std::uint64_t fusion_threshold,
               const nb::callable& allreduce_seconds) {
  TrainingScenario scenario;
  scenario.gradients = gradients;
  scenario.compute_seconds = compute_seconds;
  scenario.cycle_seconds = cycle_seconds;
  scenario.control_seconds = control_seconds;
  scenario.fusion_threshold_bytes = fusion_threshold;
  std::exception_ptr raised;  // by the first call that failed; rethrown after the library returns
  scenario.allreduce_seconds = [&](std::uint64_t bytes) {
    if (raised) return 0.0;
    try {
      return nb::cast<double>(allreduce_seconds(bytes));
    } catch (...) {
      raised = std::current_exception();
      return 0.0;
    }
  };
  auto simulated = simulate_training(scenario);
  if (raised) std::rethrow_exception(raised);
  const TrainingCost cost = take(std::move(simulated));
  nb::dict result;
  result["seconds"] = cost.seconds;
  result["exposed_seconds"] = cost.exposed_seconds;
  result["communication_seconds"] = cost.communication_seconds;
  result["control_seconds"] = cost.control_seconds;
  result["cycles"] = cost.cycles;
  result["batches"] = cost.batches;
  return result;
}

}  // namespace

void bind_simulator(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<SimulatedCall>(module, "SimulatedCall")
      .def("__init__", &make_simulated_call, nb::kw_only(), "schedule"_a, "bytes"_a,
           "ranks"_a = std::vector<std::int32_t>{}, "start_seconds"_a = std::vector<double>{},
           nb::keep_alive<1, 2>());
  nb::class_<Gradient>(module, "Gradient")
      .def(
          "__init__",
          [](Gradient* self, std::uint64_t elements, double ready, std::int32_t group) {
            new (self) Gradient{elements, ready, group};
          },
          nb::kw_only(), "elements"_a, "ready"_a, "group"_a = -1);
  nb::class_<Simulator>(module, "Simulator")
      .def(
          "__init__",
          [](Simulator* self, const Machine& machine, std::int64_t rank_count,
             const std::vector<std::pair<std::int32_t, std::int32_t>>& placement,
             const std::string& routing, std::uint64_t seed) {
            new (self) Simulator(make_simulator(machine, rank_count, placement, routing, seed));
          },
          "machine"_a, "rank_count"_a, "placement"_a = nb::list(), "routing"_a = "static_hash",
          "seed"_a = 0)
      .def("run", &run_calls, "calls"_a, nb::kw_only(), "path"_a = "auto",
           "slow_down"_a = nb::list(), "busiest_links"_a = SimulationOptions{}.busiest_links,
           "skip_repeats"_a = true, "finish"_a = false);
  module.def("simulate_schedule", &simulate_schedule, "machine"_a, "schedule"_a, "bytes"_a,
             nb::kw_only(), "path"_a = "auto", "routing"_a = "static_hash", "seed"_a = 0);
  module.def("simulate_training", &train, nb::kw_only(), "gradients"_a, "compute_seconds"_a,
             "cycle_seconds"_a, "control_seconds"_a, "fusion_threshold"_a, "allreduce_seconds"_a);
  module.def("simulate_coordination", &simulate, "design"_a, nb::kw_only(), "rank_count"_a,
             "tensor_count"_a = 161, "cache_capacity"_a = 1024, "step_count"_a = 2,
             "latency_us"_a = 2.0, "overhead_us"_a = 1.0, "bytes_per_us"_a = 10'000.0);
}

}  // namespace farandole::bindings
