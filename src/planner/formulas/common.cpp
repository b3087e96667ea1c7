// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "algorithms/hierarchy.hpp"
#include "planner/formulas/formulas.hpp"

namespace farandole {
namespace {

std::int64_t power_of_two_below(std::int64_t number) {
  return static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(number)));
}

/// One layer, one way.
struct Pass {
  std::string name;
  std::int64_t stride;
  Layer layer;
  double bytes;  // before the scatter, after the gather
};

void layer_rounds(CostSheet& sheet, const Pass& pass, bool reducing) {
  const std::int64_t size = pass.layer.size;
  const double block = pass.bytes / static_cast<double>(size);
  const auto others = static_cast<double>(size - 1);
  switch (pass.layer.kind) {
    case Layer::Kind::kRing:
      return sheet.rounds(Pattern::ring(pass.stride, size), others, block, reducing ? block : 0);
    case Layer::Kind::kDirect:
      return sheet.rounds(Pattern::all(pass.stride, size), 1, block, reducing ? others * block : 0);
    case Layer::Kind::kHalving:
      double each = pass.bytes / 2;
      for (std::int64_t bit = 1; bit < size; bit *= 2, each /= 2) {
        sheet.rounds(Pattern::ring(pass.stride * bit, 2), 1, each, reducing ? each : 0);
      }
  }
}

}  // namespace

void CostSheet::stage(std::string name) {
  name_ = std::move(name);
  first_message_ = true;
  call_ = 0;
  stage_begin_ = cost_.stages.size();
}

CostStage& CostSheet::row(Hop hop) {
  for (std::size_t i = stage_begin_; i < cost_.stages.size(); ++i) {
    if (cost_.stages[i].hop == hop) return cost_.stages[i];
  }
  return cost_.stages.emplace_back(CostStage{name_, hop});
}

void CostSheet::rounds(const Pattern& pattern, double count, double each, double reduced) {
  if (count <= 0) return;
  moves(levels_.round(pattern, each), count, count * each, each, count * reduced);
}

void CostSheet::moves(const RoundCost& cost, double messages, double moved, double first,
                      double reduced) {
  CostStage& stage = row(cost.hop);
  const HopCost& extra = levels_.extras(cost.hop);
  stage.alpha += messages * cost.alpha;
  stage.bytes += moved * cost.seconds_per_byte;
  stage.local += reduced * levels_.machine().reduce_seconds_per_byte;
  if (std::exchange(first_message_, false)) {
    stage.fill += extra.fill_chunks * first * cost.seconds_per_byte;
  }
  if (extra.call <= call_) return;
  // One call takes a stage through all its hops.
  for (std::size_t i = stage_begin_; i < cost_.stages.size(); ++i) cost_.stages[i].call = 0;
  stage.call = call_ = extra.call;
}

void CostSheet::copies(double bytes) {
  row(Hop::kHost).local += bytes * levels_.machine().copy_seconds_per_byte;
}

Cost CostSheet::finish() && {
  return std::move(cost_);
}

FoldedRanks::FoldedRanks(std::int64_t rank_count)
    : positions(power_of_two_below(rank_count)), extra(rank_count - positions) {}

Pattern exchange_pattern(const FoldedRanks& fold, std::int64_t bit) {
  return Pattern::ring(fold.extra > 0 ? std::min(2 * bit, fold.positions + fold.extra - 1) : bit,
                       2);
}

void tree_levels(CostSheet& sheet, std::int64_t size, std::int64_t radix, bool up) {
  for (std::int64_t d = 1; d < size; d *= radix) {
    const std::int64_t children = std::min(radix, (size + d - 1) / d) - 1;
    const double reduced = up ? static_cast<double>(children) * sheet.bytes() : 0;
    sheet.rounds(Pattern::fan(d, children + 1, std::min(d, size)), 1, sheet.bytes(), reduced);
  }
}

void halving_rounds(CostSheet& sheet, const FoldedRanks& fold, double bytes, bool reducing) {
  double each = bytes / 2;
  for (std::int64_t bit = 1; bit < fold.positions; bit *= 2, each /= 2) {
    sheet.rounds(exchange_pattern(fold, bit), 1, each, reducing ? each : 0);
  }
}

void doubling_rounds(CostSheet& sheet, const FoldedRanks& fold, double bytes) {
  double each = bytes / static_cast<double>(fold.positions);
  for (std::int64_t bit = fold.positions / 2; bit >= 1; bit /= 2, each *= 2) {
    sheet.rounds(exchange_pattern(fold, bit), 1, each);
  }
}

void growing_rounds(CostSheet& sheet, bool smallest_first) {
  const std::int64_t p = sheet.ranks();
  const auto round = [&](std::int64_t d) {
    const auto shares = static_cast<double>(std::min(d, p - d));
    sheet.rounds(Pattern::fan(d, 2, d), 1, shares * sheet.share());
  };
  if (smallest_first) {
    for (std::int64_t d = 1; d < p; d *= 2) round(d);
  } else {
    for (std::int64_t d = power_of_two_below(p - 1); d >= 1; d /= 2) round(d);
  }
}

std::vector<Layer> layers_or_default(const AlgorithmParameters& parameters) {
  return parameters.layers.empty() ? default_layers(parameters.rank_count) : parameters.layers;
}

void layer_stages(CostSheet& sheet, const std::vector<Layer>& layers, std::int64_t inside,
                  LayerPasses passes) {
  std::vector<Pass> in_order;
  double bytes = sheet.bytes();
  for (const Layer& layer : layers) {
    if (layer.size == 1) continue;
    in_order.push_back({"layer " + std::to_string(in_order.size() + 1), inside, layer, bytes});
    inside *= layer.size;
    bytes /= static_cast<double>(layer.size);
  }
  if (in_order.empty()) return;
  const bool both = passes.scatters && passes.gathers;
  const Pass& outermost = in_order.back();
  for (const Pass& pass : in_order) {
    if (!passes.scatters) break;
    // What is scattered furthest out comes straight back: one allreduce.
    const bool returns = both && &pass == &outermost;
    sheet.stage((returns ? "allreduce " : "reduce-scatter ") + pass.name);
    layer_rounds(sheet, pass, true);
    if (returns) layer_rounds(sheet, pass, false);
  }
  if (!passes.gathers) return;
  for (auto pass = in_order.rbegin() + (both ? 1 : 0); pass != in_order.rend(); ++pass) {
    sheet.stage("all-gather " + pass->name);
    layer_rounds(sheet, *pass, false);
  }
}

void chain_rounds(CostSheet& sheet, std::int64_t pieces, bool reducing) {
  const std::int64_t p = sheet.ranks();
  const double each = sheet.bytes() / static_cast<double>(pieces);
  sheet.rounds(Pattern::ring(1, p), static_cast<double>(pieces + p - 2), each, reducing ? each : 0);
}

void in_turn(CostSheet& sheet, double each, bool reducing) {
  Levels& levels = sheet.levels();
  const std::int64_t p = sheet.ranks(), host = levels.ranks_per_host(),
                     rack = levels.ranks_per_rack();
  const double reduced = reducing ? each : 0;
  const auto peers = [&](std::int64_t distance, std::int64_t count) {
    if (count <= 0) return;
    sheet.rounds(Pattern::fan(distance, 2, 1), static_cast<double>(count), each, reduced);
  };
  peers(1, host - 1);
  peers(std::min(host, p - 1), rack - host);
  peers(std::min(rack, p - 1), p - rack);
}

void all_distances(CostSheet& sheet, double each, bool reducing) {
  Levels& levels = sheet.levels();
  const std::int64_t p = sheet.ranks();
  // Beyond the largest group of ranks that are near each other all are equally far.
  const std::int64_t far = levels.ranks_per_rack() < p   ? levels.ranks_per_rack()
                           : levels.ranks_per_host() < p ? levels.ranks_per_host()
                                                         : p / 2;
  const std::int64_t limit = std::min(far, p / 2);
  std::int64_t left = p - 1;
  for (std::int64_t distance = 1; distance <= limit; ++distance) {
    const std::int64_t count = distance == limit ? left : 2;
    sheet.rounds(Pattern::rotate(distance), static_cast<double>(count), each, reducing ? each : 0);
    left -= count;
  }
}

}  // namespace farandole
