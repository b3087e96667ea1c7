// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <iterator>
#include <string>

#include "bindings.hpp"
#include "simulator/coordination.hpp"

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

}  // namespace

void bind_simulator(nb::module_& module) {
  using namespace nb::literals;
  module.def("simulate_coordination", &simulate, "design"_a, "rank_count"_a, "tensor_count"_a = 161,
             "cache_capacity"_a = 1024, "step_count"_a = 2, "latency_us"_a = 2.0,
             "overhead_us"_a = 1.0, "bytes_per_us"_a = 10'000.0);
}

}  // namespace farandole::bindings
