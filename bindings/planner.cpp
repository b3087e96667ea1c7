// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "bindings.hpp"
#include "frontend/transports.hpp"
#include "planner/chain_order.hpp"
#include "planner/factorizations.hpp"
#include "planner/plan.hpp"
#include "planner/tuning.hpp"
#include "transport/registry.hpp"

namespace nb = nanobind;

namespace farandole::bindings {
namespace {

using LinkTable = std::vector<std::vector<std::vector<std::int32_t>>>;  // [from][to]: numbers
using Found = std::pair<std::vector<std::int32_t>, std::int64_t>;       // order, contention

Found chain_order_of_links(const LinkTable& table, std::int32_t root) {
  const nb::gil_scoped_release release;
  const HopLinks links = [&](std::int32_t from, std::int32_t to) {
    return table[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)];
  };
  ChainOrder found = chain_order(static_cast<std::int32_t>(table.size()), links, root);
  return {std::move(found.order), found.contention};
}

Found chain_order_of_tree(std::vector<std::int32_t> parent, std::vector<std::int32_t> node_of,
                          std::int32_t root) {
  const nb::gil_scoped_release release;
  ChainOrder found = chain_order(LinkTree{std::move(parent), std::move(node_of)}, root);
  return {std::move(found.order), found.contention};
}

nb::dict as_dict(const std::string& spec, const Cost& cost) {
  nb::list stages;
  for (const CostStage& stage : cost.stages) {
    nb::dict row;
    row["name"] = stage.name;
    row["hop"] = kHopNames[static_cast<std::size_t>(stage.hop)];
    row["alpha"] = stage.alpha;
    row["bytes"] = stage.bytes;
    row["call"] = stage.call;
    row["fill"] = stage.fill;
    row["local"] = stage.local;
    row["seconds"] = stage.seconds();
    stages.append(row);
  }
  nb::dict result;
  result["algorithm"] = spec;
  result["seconds"] = cost.seconds();
  result["stages"] = stages;
  return result;
}

/// The arguments of a prediction, as Python gives them.
struct Asked {
  Collective collective;
  Levels levels;
};

Asked asked(const Machine& machine, const std::string& collective, double bytes,
            std::int64_t rank_count, std::int64_t ranks_per_host) {
  const auto wrong = [](const std::string& argument, const std::string& given,
                        const std::string& allowed) {
    raise({ErrorKind::kInvalidArgument,
           "argument '" + argument + "' is " + given + ", allowed is " + allowed + "."});
  };
  const auto parsed = parse_collective(collective);
  if (!parsed) wrong("collective", "'" + collective + "'", "allreduce, broadcast, ...");
  if (!(bytes >= 0 && bytes <= 1e18)) wrong("bytes", std::to_string(bytes), "0 to 1e18");
  if (rank_count < 1 || rank_count > kRanksMax) {
    wrong("rank_count", std::to_string(rank_count), "1 to " + std::to_string(kRanksMax));
  }
  if (ranks_per_host < 0 || ranks_per_host > rank_count) {
    wrong("ranks_per_host", std::to_string(ranks_per_host), "0 to rank_count");
  }
  take(check(machine));
  return {*parsed, Levels(machine, {.rank_count = rank_count, .ranks_per_host = ranks_per_host})};
}

nb::list plan_for(const Machine& machine, const std::string& collective, double bytes,
                  std::int64_t rank_count, std::int64_t ranks_per_host, std::int64_t factor_max,
                  std::size_t hierarchies, bool exhaustive, bool rings_only) {
  Asked question = asked(machine, collective, bytes, rank_count, ranks_per_host);
  const PlanOptions options{
      .hierarchies = hierarchies,
      .search = {.factor_max = factor_max, .rings_only = rings_only, .exhaustive = exhaustive}};
  std::vector<Candidate> candidates;
  {
    const nb::gil_scoped_release release;
    candidates = plan(question.collective, bytes, question.levels, options);
  }
  nb::list rows;
  for (const Candidate& candidate : candidates) {
    nb::dict row = as_dict(candidate.spec, candidate.cost);
    row["chosen"] = &candidate == &choose(candidates);
    rows.append(row);
  }
  return rows;
}

std::string choose_for(const Machine& machine, const std::string& collective, double bytes,
                       std::int64_t rank_count, std::int64_t ranks_per_host) {
  Asked question = asked(machine, collective, bytes, rank_count, ranks_per_host);
  const nb::gil_scoped_release release;
  return choose(plan(question.collective, bytes, question.levels)).spec;
}

nb::dict predict_one(const Machine& machine, const std::string& collective,
                     const std::string& algorithm, double bytes, std::int64_t rank_count,
                     std::int64_t ranks_per_host) {
  Asked question = asked(machine, collective, bytes, rank_count, ranks_per_host);
  return as_dict(algorithm, take(predict(question.collective, algorithm, bytes, question.levels)));
}

/// Reads a tuning file's text and writes it again, one line per entry.
std::string checked_tuning(const std::string& text, const std::string& file) {
  return to_text(take(parse_tuning(text, file, transport_names())));
}

/// The transports that FARANDOLE_TRANSPORT chooses from: name, summary, and whether ranks meet in
/// memory.
nb::list transport_rows() {
  nb::list rows;
  for (const TransportRow& row : transports()) {
    if (row.threads != nullptr) continue;
    rows.append(nb::make_tuple(row.name, row.summary, row.cost({}).through_memory));
  }
  return rows;
}

std::string tuning_name_for(const std::string& transport, bool same_host) {
  return std::string(transport_for(transport, same_host).tuning_name);
}

}  // namespace

void bind_planner(nb::module_& module) {
  using namespace nb::literals;
  module.def("chain_order", &chain_order_of_links, "links"_a, "root"_a);
  module.def("chain_order_of_tree", &chain_order_of_tree, "parent"_a, "node_of"_a, "root"_a);
  module.def("plan", &plan_for, "machine"_a, "collective"_a, "bytes"_a, "rank_count"_a,
             nb::kw_only(), "ranks_per_host"_a = 0, "factor_max"_a = 0, "hierarchies"_a = 4,
             "exhaustive"_a = false, "rings_only"_a = false);
  module.def("choose", &choose_for, "machine"_a, "collective"_a, "bytes"_a, "rank_count"_a,
             nb::kw_only(), "ranks_per_host"_a = 0);
  module.def("predict", &predict_one, "machine"_a, "collective"_a, "algorithm"_a, "bytes"_a,
             "rank_count"_a, nb::kw_only(), "ranks_per_host"_a = 0);
  module.def("factorizations", &factorizations, "number"_a, "factor_max"_a = 0);
  module.def("default_machine", &assumed_machine, "ranks_per_host"_a, "hosts"_a,
             "transport"_a = "auto", "cores"_a = 0);
  module.def("transports", &transport_rows);
  module.def("transport_for", &tuning_name_for, "transport"_a, "same_host"_a);
  module.def("check_tuning", &checked_tuning, "text"_a, "file"_a);
}

}  // namespace farandole::bindings
