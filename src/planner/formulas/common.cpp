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

/// One layer in one direction.
struct Pass {
  std::string name;
  std::int64_t stride, every;  // ranks between members; only multiples of `every` take part
  Layer layer;
  double bytes;  // before the scatter, after the gather
};

void layer_rounds(CostSheet& sheet, const Pass& pass, bool reducing) {
  const std::int64_t size = pass.layer.size;
  const double block = pass.bytes / static_cast<double>(size);
  const auto others = static_cast<double>(size - 1);
  switch (pass.layer.kind) {
    case Layer::Kind::kRing:
      return sheet.rounds(Pattern::ring(pass.stride, size).of_every(pass.every), others, block,
                          reducing ? block : 0);
    case Layer::Kind::kDirect:
      return sheet.rounds(Pattern::all(pass.stride, size).of_every(pass.every), 1, block,
                          reducing ? others * block : 0);
    case Layer::Kind::kHalving:
      // Nearest first when reducing, furthest first when gathering.
      double each = reducing ? pass.bytes / 2 : block;
      for (std::int64_t done = 1; done < size; done *= 2, each *= reducing ? 0.5 : 2) {
        const std::int64_t bit = reducing ? done : size / 2 / done;
        sheet.rounds(Pattern::pairs(pass.stride * bit).of_every(pass.every), 1, each,
                     reducing ? each : 0);
      }
  }
}

}  // namespace

void CostSheet::stage(std::string name) {
  name_ = std::move(name);
  is_begun_ = false;
  stage_begin_ = cost_.stages.size();
}

CostStage& CostSheet::row(Hop hop) {
  for (std::size_t i = stage_begin_; i < cost_.stages.size(); ++i) {
    if (cost_.stages[i].hop == hop && cost_.stages[i].name == name_) return cost_.stages[i];
  }
  return cost_.stages.emplace_back(CostStage{name_, hop});
}

void CostSheet::rounds(const Pattern& pattern, double count, double each, double reduced,
                       Newcomers newcomers) {
  if (count <= 0) return;
  const RoundCost cost = levels_.round(pattern, each);
  if (newcomers == Newcomers::kSenders) {
    // Every sender fills its own pipeline.
    first_message(pattern, cost, count * each);
  } else if (!is_begun_) {
    first_message(pattern, cost, each);
  } else if (newcomers == Newcomers::kReceivers) {
    // The receivers have paid for their call in the meantime, unless it takes longer.
    row(cost.hop).call += std::max(0.0, levels_.call(pattern) - stage_seconds());
  }
  moves(cost, count, count * each, count * reduced);
}

void CostSheet::moves(const RoundCost& cost, double messages, double moved, double reduced) {
  CostStage& stage = row(cost.hop);
  stage.alpha += messages * cost.alpha;
  stage.bytes += moved * cost.seconds_per_byte;
  stage.local += reduced * levels_.machine().reduce_seconds_per_byte;
}

void CostSheet::first_message(const Pattern& pattern, const RoundCost& cost, double bytes) {
  CostStage& stage = row(cost.hop);
  const double waits = std::max(0.0, levels_.call(pattern) - stage_seconds());
  stage.call += waits;
  stage.fill += levels_.extras(cost.hop).fill_chunks * bytes * cost.seconds_per_byte;
  is_begun_ = true;
}

double CostSheet::stage_seconds() const {
  double seconds = 0;
  for (std::size_t i = stage_begin_; i < cost_.stages.size(); ++i) {
    seconds += cost_.stages[i].seconds();
  }
  return seconds;
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
  return Pattern::pairs(fold.extra > 0 ? std::min(2 * bit, fold.positions + fold.extra - 1) : bit);
}

void tree_levels(CostSheet& sheet, std::int64_t size, std::int64_t radix, bool up) {
  std::vector<std::int64_t> distances;
  for (std::int64_t d = 1; d < size; d *= radix) distances.push_back(d);
  if (up) std::reverse(distances.begin(), distances.end());
  for (const std::int64_t d : distances) {
    const std::int64_t children = std::min(radix, (size + d - 1) / d) - 1;
    const double reduced = up ? static_cast<double>(children) * sheet.bytes() : 0;
    // Whether some children had no message at the next longer distance, d * radix.
    const bool some = d * radix < size && size < 2 * d * radix;
    using enum CostSheet::Newcomers;
    const Pattern fan = Pattern::fan(d, children + 1, std::min(d, size), size);
    sheet.rounds(up ? fan.towards_senders() : fan, 1, sheet.bytes(), reduced,
                 !up    ? kReceivers
                 : some ? kSenders
                        : kNone);
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

void growing_rounds(CostSheet& sheet, bool nearest_first) {
  const std::int64_t p = sheet.ranks();
  const auto round = [&](std::int64_t d) {
    const auto shares = static_cast<double>(std::min(d, p - d));
    const auto newcomers =
        nearest_first ? CostSheet::Newcomers::kNone : CostSheet::Newcomers::kReceivers;
    sheet.rounds(Pattern::fan(d, 2, p).of_every(2 * d), 1, shares * sheet.share(), 0, newcomers);
  };
  if (nearest_first) {
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
  std::int64_t stride = inside;
  double bytes = sheet.bytes();
  for (const Layer& layer : layers) {
    if (layer.size == 1) continue;
    in_order.push_back(
        {"layer " + std::to_string(in_order.size() + 1), stride, inside, layer, bytes});
    stride *= layer.size;
    bytes /= static_cast<double>(layer.size);
  }
  if (in_order.empty()) return;
  const bool both = passes.scatters && passes.gathers;
  const Pass& outermost = in_order.back();
  for (const Pass& pass : in_order) {
    if (!passes.scatters) break;
    // The outermost layer gathers directly after it scatters: one allreduce.
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
  const double each = sheet.bytes() / static_cast<double>(pieces), reduced = reducing ? each : 0;
  const auto newcomers = CostSheet::Newcomers::kReceivers;
  const auto hops = sheet.levels().chain_hops();
  // The first piece goes alone, over every hop in turn; the others follow, as fast as the slowest
  // hop.
  const std::array<std::int64_t, kHopCount> distances = sheet.levels().hop_distances();
  for (std::size_t hop = 0; hop < kHopCount; ++hop) {
    const Pattern one = Pattern::fan(distances[hop], 2, 1);
    sheet.rounds(one, static_cast<double>(hops[hop]), each, reduced, newcomers);
  }
  sheet.rounds(Pattern::cycle(1, p), static_cast<double>(pieces - 1), each, reduced);
}

void in_turn(CostSheet& sheet, double each, bool up, bool reducing) {
  Levels& levels = sheet.levels();
  const std::int64_t p = sheet.ranks(), host = levels.ranks_per_host(),
                     rack = levels.ranks_per_rack();
  const double reduced = reducing ? each : 0;
  const auto peers = [&](std::int64_t distance, std::int64_t number) {
    if (number <= 0) return;
    const Pattern one = Pattern::fan(distance, 2, 1);
    const auto count = static_cast<double>(number);
    if (!up) return sheet.rounds(one, count, each, reduced, CostSheet::Newcomers::kReceivers);
    // All messages come at once, and every sender fills its own pipeline.
    RoundCost cost = levels.round(one, each);
    cost.alpha += levels.extras(cost.hop).crowding * (count - 1);
    sheet.first_message(one, cost, count * each);
    sheet.moves(cost, count, count * each, count * reduced);
  };
  peers(1, host - 1);
  peers(std::min(host, p - 1), rack - host);
  peers(std::min(rack, p - 1), p - rack);
}

void all_distances(CostSheet& sheet, double each, bool reducing) {
  Levels& levels = sheet.levels();
  const std::int64_t p = sheet.ranks();
  // Outside the largest group of ranks that are near each other, all ranks are equally far.
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
