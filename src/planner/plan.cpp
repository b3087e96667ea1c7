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

// Closer than this no prediction is.
constexpr double kAsFast = 1.01;
constexpr double kPiecesMax = 256;
// Its proof takes p^2 steps.
constexpr std::int64_t kScatterAllgatherRanksMax = 512;
// Walking two trees takes a step per rank and piece.
constexpr std::int64_t kDoubleTreeRanksMax = 1024;

bool has_option(const AlgorithmInfo& info, std::string_view option) {
  return info.options.find(option) != std::string_view::npos;
}

/// What of an algorithm is worth a look.
std::vector<std::string> specs_of(const AlgorithmInfo& info, double bytes, Levels& levels) {
  const std::string name(info.name);
  const std::int64_t p = levels.rank_count();
  // Two ranks have one way between them: pieces only cost more messages (64 MiB over the loopback
  // interface 20 ms, in 64 pieces 30).
  if (info.name == "scatter_allgather" && (p == 2 || p > kScatterAllgatherRanksMax)) return {};
  if (info.name == "double_binary_tree" && (p == 2 || p > kDoubleTreeRanksMax)) return {};
  if (has_option(info, "radix")) {
    if (info.collective == Collective::kAllreduce) {
      return {name + ":radix=2", name + ":radix=4", name + ":radix=8"};
    }
    return {name + ":radix=4", name + ":radix=8"};  // radix 2 has a name of its own
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

/// Peers read in place within a host; between hosts many streams at once share wires badly.
bool reads_in_place(const Candidate& candidate) {
  return candidate.spec == "direct" &&
         std::ranges::all_of(candidate.cost.stages,
                             [](const CostStage& stage) { return stage.hop == Hop::kHost; });
}

/// One stream per rank at a time, which no port has to share well.
bool is_simple(std::string_view spec) {
  return spec.find("layers=") == std::string_view::npos && !spec.starts_with("double_binary_tree");
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
  const auto add = [&](std::string spec) {
    auto cost = predict(collective, spec, bytes, levels);
    if (!cost) return;
    const double seconds = cost->seconds();
    candidates.push_back({std::move(spec), seconds, *std::move(cost)});
  };
  for (const AlgorithmInfo* info : algorithms()) {
    if (info->collective != collective || levels.rank_count() > info->ranks_max) continue;
    if (info->name != "hierarchical") {
      for (std::string& spec : specs_of(*info, bytes, levels)) add(std::move(spec));
      continue;
    }
    auto found = search_hierarchies(collective, bytes, levels, options.search);
    // One layer is `ring`, `direct` or, but for the order of its rounds, `rabenseifner`.
    std::erase_if(found, [](const RankedHierarchy& one) { return one.layers < 2; });
    if (found.size() > options.hierarchies) found.resize(options.hierarchies);
    for (RankedHierarchy& hierarchy : found) add(std::move(hierarchy.spec));
  }
  std::ranges::stable_sort(candidates, {}, &Candidate::seconds);
  return candidates;
}

const Candidate& choose(const std::vector<Candidate>& candidates) {
  const double limit = candidates.front().seconds * kAsFast;
  const Candidate* simple = nullptr;
  for (const Candidate& candidate : candidates) {
    if (candidate.seconds > limit) break;
    if (reads_in_place(candidate)) return candidate;
    if (simple == nullptr && is_simple(candidate.spec)) simple = &candidate;
  }
  return simple != nullptr ? *simple : candidates.front();
}

}  // namespace farandole
