// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "planner/factorizations.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <utility>

#include "planner/cost.hpp"

namespace farandole {
namespace {

using Layers = std::vector<Layer>;

// A direct layer has a lane per rank.
constexpr std::int64_t kDirectMax = 1024;
// A layer of 2 is one message each way, whether ring or direct.
constexpr std::int64_t kKindsFrom = 3;

const char* kind_name(Layer::Kind kind) {
  switch (kind) {
    case Layer::Kind::kRing:
      return "ring";
    case Layer::Kind::kHalving:
      return "halving";
    case Layer::Kind::kDirect:
      break;
  }
  return "direct";
}

std::string spec_of(const Layers& layers) {
  std::string spec = "hierarchical:layers=";
  for (const Layer& layer : layers) {
    if (&layer != &layers.front()) spec += "/";
    spec += std::to_string(layer.size) + kind_name(layer.kind);
  }
  return spec;
}

std::vector<Layer::Kind> kinds_of(std::int64_t size, bool rings_only) {
  std::vector<Layer::Kind> kinds = {Layer::Kind::kRing};
  if (rings_only || size < kKindsFrom) return kinds;
  if (std::has_single_bit(static_cast<std::uint64_t>(size))) kinds.push_back(Layer::Kind::kHalving);
  if (size <= kDirectMax) kinds.push_back(Layer::Kind::kDirect);
  return kinds;
}

bool before(const RankedHierarchy& a, const RankedHierarchy& b) {
  if (a.seconds != b.seconds) return a.seconds < b.seconds;
  if (a.layers != b.layers) return a.layers < b.layers;
  return a.spec < b.spec;
}

/// One search. Predicts the times of complete hierarchies, and of those over fewer ranks.
class Search {
 public:
  Search(Collective collective, double bytes, Levels& levels, const HierarchySearch& options)
      : collective_(collective),
        bytes_(bytes),
        levels_(levels),
        options_(options),
        factor_max_(options.factor_max > 0 ? options.factor_max : levels.rank_count()) {}

  std::vector<RankedHierarchy> exhaustive() {
    for (const auto& sizes : factorizations(levels_.rank_count(), factor_max_)) {
      Layers layers;
      each_choice_of_kinds(sizes, layers);
    }
    return sorted(levels_.rank_count());
  }

  std::vector<RankedHierarchy> pruned() {
    const std::int64_t p = levels_.rank_count();
    found_[1].push_back({{}, {}});
    for (std::int64_t reached = 1; reached < p; ++reached) {
      if (p % reached != 0 || !found_.contains(reached)) continue;
      for (const Found& base : best(reached)) {
        for (std::int64_t factor = 2; factor <= std::min(factor_max_, p / reached); ++factor) {
          if (p / reached % factor == 0) extend(base.layers, reached, factor);
        }
        if (!base.layers.empty()) lengthen(base.layers, reached);
      }
    }
    return sorted(p);
  }

 private:
  struct Found {
    Layers layers;
    RankedHierarchy ranked;
  };

  void each_choice_of_kinds(const std::vector<std::int64_t>& sizes, Layers& layers) {
    if (layers.size() == sizes.size()) return add(layers, levels_.rank_count());
    for (const Layer::Kind kind : kinds_of(sizes[layers.size()], options_.rings_only)) {
      layers.push_back({sizes[layers.size()], kind});
      each_choice_of_kinds(sizes, layers);
      layers.pop_back();
    }
  }

  void extend(Layers layers, std::int64_t reached, std::int64_t factor) {
    layers.push_back({factor});
    for (const Layer::Kind kind : kinds_of(factor, options_.rings_only)) {
      layers.back().kind = kind;
      add(layers, reached * factor);
    }
  }

  void lengthen(Layers layers, std::int64_t reached) {
    const std::int64_t last = layers.back().size, rest = levels_.rank_count() / reached;
    layers.pop_back();
    for (std::int64_t factor = 2; factor <= std::min(factor_max_ / last, rest); ++factor) {
      if (rest % factor == 0) extend(layers, reached / last, last * factor);
    }
  }

  /// Predicts the time of the layers on as many ranks of this machine as they span.
  void add(const Layers& layers, std::int64_t ranks) {
    std::vector<Found>& others = found_[ranks];
    const auto same = [&](const Found& one) { return one.layers == layers; };
    if (!options_.exhaustive && std::ranges::any_of(others, same)) return;
    std::string spec = spec_of(layers);
    const auto cost = predict(collective_, spec, bytes_, over(ranks));
    if (cost) others.push_back({layers, {std::move(spec), layers.size(), cost->seconds()}});
  }

  Levels& over(std::int64_t ranks) {
    if (ranks == levels_.rank_count()) return levels_;
    Placement placement = levels_.placement();
    placement.rank_count = ranks;
    placement.ranks_per_host = levels_.ranks_per_host();
    return smaller_.try_emplace(ranks, levels_.machine(), placement).first->second;
  }

  std::vector<Found> best(std::int64_t ranks) {
    std::vector<Found> found = found_[ranks];
    std::ranges::sort(found, before, &Found::ranked);
    if (found.size() > options_.kept) found.resize(options_.kept);
    return found;
  }

  std::vector<RankedHierarchy> sorted(std::int64_t ranks) {
    std::vector<RankedHierarchy> result;
    for (Found& one : found_[ranks]) result.push_back(std::move(one.ranked));
    std::ranges::sort(result, before);
    return result;
  }

  const Collective collective_;
  const double bytes_;
  Levels& levels_;
  const HierarchySearch& options_;
  const std::int64_t factor_max_;
  std::map<std::int64_t, std::vector<Found>> found_;  // by ranks spanned
  std::map<std::int64_t, Levels> smaller_;
};

void factorize(std::int64_t number, std::int64_t factor_max, std::vector<std::int64_t>& factors,
               std::vector<std::vector<std::int64_t>>& all) {
  if (number == 1) return all.push_back(factors);
  for (std::int64_t factor = 2; factor <= std::min(number, factor_max); ++factor) {
    if (number % factor != 0) continue;
    factors.push_back(factor);
    factorize(number / factor, factor_max, factors, all);
    factors.pop_back();
  }
}

}  // namespace

std::vector<std::vector<std::int64_t>> factorizations(std::int64_t number,
                                                      std::int64_t factor_max) {
  std::vector<std::vector<std::int64_t>> all;
  std::vector<std::int64_t> factors;
  factorize(number, factor_max > 0 ? factor_max : number, factors, all);
  return all;
}

std::vector<RankedHierarchy> search_hierarchies(Collective collective, double bytes, Levels& levels,
                                                const HierarchySearch& search) {
  if (levels.rank_count() < 2) return {};
  Search one(collective, bytes, levels, search);
  return search.exhaustive ? one.exhaustive() : one.pruned();
}

}  // namespace farandole
