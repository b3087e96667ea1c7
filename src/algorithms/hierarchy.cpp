// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "algorithms/hierarchy.hpp"

namespace farandole {
namespace {

RoundBuilder round_of(ScheduleBuilder& b, const LayerRounds& level) {
  RoundBuilder round = b.round();
  for (const Guard& guard : level.when) round.when(guard.value, guard.low, guard.high);
  return round;
}

void scatter_in_ring(ScheduleBuilder& b, const LayerRounds& level, const Place& source,
                     const Place& target) {
  const std::int64_t n = level.size, block = level.block;
  const Expr d = level.digit(), left = level.peer((d - 1) % n), right = level.peer((d + 1) % n);
  const auto sent = [&](const Expr& s) { return level.first((d - s - 1) % n); };
  round_of(b, level)
      .send(source(sent(0), block), right)
      .receive_reduce(target(sent(1), block), source(sent(1), block), left);
  b.loop(n - 2, [&](const Expr& s) {
    const Expr next = sent(s + 2);
    round_of(b, level)
        .send(target(sent(s + 1), block), right)
        .receive_reduce(target(next, block), source(next, block), left);
  });
}

void scatter_directly(ScheduleBuilder& b, const LayerRounds& level, const Place& source,
                      const Place& target) {
  const std::int64_t block = level.block;
  const int n = static_cast<int>(level.size);
  const Expr d = level.digit(), own = level.first(d);
  RoundBuilder round = round_of(b, level);
  for (int i = 1; i < n; ++i) {
    const Expr other = (d + i) % n;
    round.lane(i - 1).send(source(level.first(other), block), level.peer(other));
  }
  for (int i = 1; i < n; ++i) {
    if (i > 1) round.then();  // one order of operands, whichever arrives first
    round.lane(i - 1).receive_reduce(target(own, block), (i == 1 ? source : target)(own, block),
                                     level.peer((d - i) % n));
  }
}

}  // namespace

Expr LayerRounds::digit(const Expr& position) const {
  const Expr shifted = stride == 1 ? position : position / stride;
  return stride * size == rank_count ? shifted : shifted % size;
}

Expr LayerRounds::peer(const Expr& digit) const {
  const Expr r = Expr::rank();
  const std::int64_t above = stride * size;
  Expr position = stride == 1 ? digit : digit * stride + r % stride;
  return above == rank_count ? position : r / above * above + position;
}

std::vector<LayerRounds> levels_of(std::int64_t rank_count, const std::vector<Layer>& layers,
                                   std::int64_t inside) {
  std::vector<LayerRounds> levels;
  std::int64_t stride = inside;
  int number = inside > 1 ? 1 : 0;
  const auto add = [&](std::int64_t size, Layer::Kind kind, std::int64_t ring_size) {
    levels.push_back({kind, size, stride, 1, rank_count, 0, {}, number, ring_size});
    stride *= size;
  };
  for (const Layer& layer : layers) {
    ++number;
    const std::int64_t ring_size = layer.kind == Layer::Kind::kRing ? layer.size : 0;
    if (layer.kind != Layer::Kind::kHalving) {
      if (layer.size > 1) add(layer.size, layer.kind, ring_size);
      continue;
    }
    for (std::int64_t left = layer.size; left > 1; left /= 2) add(2, Layer::Kind::kRing, ring_size);
  }
  std::int64_t block = stride / inside;  // all chunks
  Expr base = 0;
  for (LayerRounds& level : levels) {
    level.block = block /= level.size;
    level.base = base;
    base = level.first(level.digit());
  }
  return levels;
}

void begin_stage(ScheduleBuilder& b, const LayerRounds& level, const char* what) {
  b.stage(std::string(what) + "_" + std::to_string(level.layer), level.ring_size,
          level.ring_size > 0 ? level.stride : 1);
}

std::vector<Layer> default_layers(std::int64_t rank_count) {
  std::vector<Layer> layers;
  for (std::int64_t factor = 2; rank_count > 1; ++factor) {
    if (factor * factor > rank_count) factor = rank_count;
    for (; rank_count % factor == 0; rank_count /= factor) layers.push_back({factor});
  }
  return layers;
}

std::vector<Layer> default_two_levels(std::int64_t rank_count) {
  std::int64_t node = 1;
  for (std::int64_t q = 1; q * q <= rank_count; ++q) node = rank_count % q == 0 ? q : node;
  return {{node}, {rank_count / node}};
}

void scatter_sums(ScheduleBuilder& b, const LayerRounds& level, const Place& source,
                  const Place& target) {
  (level.kind == Layer::Kind::kDirect ? scatter_directly : scatter_in_ring)(b, level, source,
                                                                            target);
}

void gather_blocks(ScheduleBuilder& b, const LayerRounds& level, const Place& place) {
  const std::int64_t n = level.size, block = level.block;
  const Expr d = level.digit();
  if (level.kind == Layer::Kind::kDirect) {
    RoundBuilder round = round_of(b, level);
    for (int i = 1; i < static_cast<int>(n); ++i) {
      const Expr from = (d - i) % n;
      round.lane(i - 1)
          .send(place(level.first(d), block), level.peer((d + i) % n))
          .receive(place(level.first(from), block), level.peer(from));
    }
    return;
  }
  b.loop(n - 1, [&](const Expr& s) {
    round_of(b, level)
        .send(place(level.first((d - s) % n), block), level.peer((d + 1) % n))
        .receive(place(level.first((d - s - 1) % n), block), level.peer((d - 1) % n));
  });
}

void allreduce_in_layers(ScheduleBuilder& b, const std::vector<LayerRounds>& levels,
                         const Place& inputs, const Place& sums) {
  const auto stage = [&](const LayerRounds& level, const char* what) {
    begin_stage(b, level, level.layer == levels.back().layer ? "allreduce" : what);
  };
  for (const LayerRounds& level : levels) {
    b.rotation({level.size, level.stride, level.block, 0});
    stage(level, "scatter");
    scatter_sums(b, level, level.stride == 1 ? inputs : sums, sums);
  }
  for (auto level = levels.rbegin(); level != levels.rend(); ++level) {
    stage(*level, "gather");
    gather_blocks(b, *level, sums);
  }
}

Place slots() {
  return [](const Expr& first, std::int64_t block) { return scratch(first, 0, block); };
}

ChunkAndSlot chunk_and_slot(const std::vector<LayerRounds>& levels, const Expr& offset) {
  ChunkAndSlot result;
  for (const LayerRounds& level : levels) {
    const Expr digit = (level.digit() + level.digit(offset)) % level.size;
    result.chunk = result.chunk + digit * level.stride;
    result.slot = result.slot + digit * level.block;
  }
  return result;
}

}  // namespace farandole
