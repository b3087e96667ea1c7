// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "planner/plan.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "algorithms/registry.hpp"

namespace farandole {
namespace {

// No prediction is more precise than this: docs/validation.md.
constexpr double kAsFast = 1.07;
constexpr double kPiecesMax = 256;
// Its proof takes p^2 steps.
constexpr std::int64_t kScatterAllgatherRanksMax = 512;
// On two cores, one_shot of 4 bytes took 3.1 instead of 3.8 us on four ranks, and 10 instead of 15
// us on eight; it took more once messages no longer fit into a slot of a ring. Through sockets it
// took 27 instead of 20 us on three ranks.
constexpr double kOneShotBytesMax = 2048;
// Walking two trees takes a step per rank and piece.
constexpr std::int64_t kDoubleTreeRanksMax = 1024;

bool has_option(const AlgorithmInfo& info, std::string_view option) {
  return info.options.find(option) != std::string_view::npos;
}

/// Whether ranks read each other's memory.
bool shares_memory(const Machine& machine) {
  return std::ranges::any_of(machine.links, [&](const Machine::Link& link) {
    return std::isinf(machine.rate(link, true)) || std::isinf(machine.rate(link, false));
  });
}

/// The specs of an algorithm that are worth predicting.
std::vector<std::string> specs_of(const AlgorithmInfo& info, double bytes, Levels& levels) {
  const std::string name(info.name);
  const std::int64_t p = levels.rank_count();
  // Two ranks have one path between them: pieces only cost more messages (64 MiB over the loopback
  // interface took 20 ms, in 64 pieces 30 ms).
  if (info.name == "scatter_allgather" && (p == 2 || p > kScatterAllgatherRanksMax)) return {};
  if (info.name == "double_binary_tree" && (p == 2 || p > kDoubleTreeRanksMax)) return {};
  if (p == 2 && (info.name == "chain" || info.name == "pipelined_chain")) return {};
  if (info.name == "one_shot") {
    const bool meets_in_memory = shares_memory(levels.machine()) && p <= levels.ranks_per_host();
    if (!meets_in_memory || bytes > kOneShotBytesMax) return {};
  }
  if (has_option(info, "radix")) {
    std::vector<std::string> specs;
    // A broadcast by radix 2 has a name of its own. All radices from p on are the same program.
    for (std::int64_t radix = info.collective == Collective::kAllreduce ? 2 : 4; radix <= 8;
         radix *= 2) {
      if (radix == 2 || radix / 2 < p) specs.push_back(name + ":radix=" + std::to_string(radix));
    }
    return specs;
  }
  if (has_option(info, "chunks")) {
    // Rounds until the last rank has its first piece.
    const std::int64_t depth = info.name == "double_binary_tree"
                                   ? std::bit_width(static_cast<std::uint64_t>(p - 1))
                                   : p - 2;
    return {name + ":chunks=" + std::to_string(best_pieces(bytes, depth, levels))};
  }
  return {name};
}

/// Whether no message leaves its host.
bool stays_on_host(const Cost& cost) {
  return std::ranges::all_of(cost.stages,
                             [](const CostStage& stage) { return stage.hop == Hop::kHost; });
}

/// Whether most of the time is spent on the wires.
bool streams(const Candidate& candidate) {
  double on_wires = 0;
  for (const CostStage& stage : candidate.cost.stages) on_wires += stage.bytes;
  return on_wires > candidate.seconds / 2;
}

/// How much an algorithm depends on what the model assumes, least first.
enum class Demand {
  kInPlace,     // peers that read each other's memory, all at once
  kHost,        // no network
  kNeighbours,  // one stream per rank, always from the same peer
  kPeers,       // streams between changing peers
  kSharing,     // several streams of a rank at once, among which wires are shared well
};

Demand demand_of(const Candidate& candidate) {
  const std::string_view spec = candidate.spec, name = spec.substr(0, spec.find(':'));
  if (name == "direct" && stays_on_host(candidate.cost)) return Demand::kInPlace;
  if (candidate.in_memory) return Demand::kHost;
  const bool chain = name == "chain" || name == "pipelined_chain";
  const bool neighbours = name == "ring" || (chain && !stays_on_host(candidate.cost));
  if (neighbours && streams(candidate)) return Demand::kNeighbours;
  const bool layers = spec.find("layers=") != std::string_view::npos;
  return layers || name == "direct" || name == "double_binary_tree" ? Demand::kSharing
                                                                    : Demand::kPeers;
}

}  // namespace

std::int64_t best_pieces(double bytes, std::int64_t depth, Levels& levels) {
  const std::int64_t p = levels.rank_count();
  if (depth < 1) return 1;
  const RoundCost cost = levels.round(Pattern::cycle(1, p), bytes);
  if (cost.alpha <= 0) return static_cast<std::int64_t>(kPiecesMax);
  const double best =
      std::sqrt(bytes * static_cast<double>(depth) * cost.seconds_per_byte / cost.alpha);
  // Powers of two, so that neighbouring sizes share a proof.
  const double rounded = std::exp2(std::round(std::log2(std::max(best, 1.0))));
  return static_cast<std::int64_t>(std::min(rounded, kPiecesMax));
}

std::vector<Candidate> plan(Collective collective, double bytes, Levels& levels,
                            const PlanOptions& options) {
  std::vector<Candidate> candidates;
  const bool memory = shares_memory(levels.machine());
  const auto add = [&](std::string spec) {
    auto cost = predict(collective, spec, bytes, levels);
    if (!cost) return;
    const double seconds = cost->seconds();
    const bool in_memory = memory && stays_on_host(*cost);
    candidates.push_back({std::move(spec), seconds, *std::move(cost), in_memory});
  };
  for (const AlgorithmInfo* info : algorithms()) {
    if (info->collective != collective || levels.rank_count() > info->ranks_max) continue;
    if (info->name != "hierarchical") {
      for (std::string& spec : specs_of(*info, bytes, levels)) add(std::move(spec));
      continue;
    }
    auto found = search_hierarchies(collective, bytes, levels, options.search);
    // A single layer is `ring`, `direct` or, except for the order of its rounds, `rabenseifner`.
    std::erase_if(found, [](const RankedHierarchy& one) { return one.layers < 2; });
    if (found.size() > options.hierarchies) found.resize(options.hierarchies);
    for (RankedHierarchy& hierarchy : found) add(std::move(hierarchy.spec));
  }
  for (const AlgorithmInfo* info : options.delegates) {
    if (info->collective == collective) add(std::string(info->name));
  }
  std::ranges::stable_sort(candidates, {}, &Candidate::seconds);
  return candidates;
}

const Candidate& choose(const std::vector<Candidate>& candidates) {
  const double limit = candidates.front().seconds * kAsFast;
  const auto end = std::ranges::find_if(
      candidates, [&](const Candidate& candidate) { return candidate.seconds > limit; });
  return *std::ranges::min_element(candidates.begin(), end, {}, demand_of);
}

}  // namespace farandole
