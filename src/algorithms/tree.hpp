// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "schedule/builder.hpp"

namespace farandole {

inline constexpr std::int64_t kDefaultRadix = 4;

/// A k-nomial tree over positions 0 to size - 1 with its root at 0. On the level of distance d, a
/// power of the radix, each position below d is connected to those d, 2 d, ... (radix - 1) d above
/// it, each over a lane of its own, so that a level is one round.
class KnomialTree {
 public:
  /// `rank_at(offset)` is the rank at this rank's position plus the offset.
  KnomialTree(std::int64_t size, std::int64_t radix, Expr position,
              std::function<Expr(std::int64_t)> rank_at)
      : size_(size), radix_(radix), position_(std::move(position)), rank_at_(std::move(rank_at)) {}

  /// The tree over all ranks, counted from the root.
  static KnomialTree over(std::int64_t rank_count, std::int64_t radix, std::int64_t root) {
    return {rank_count, radix, (Expr::rank() - root) % rank_count,
            [=](std::int64_t offset) { return (Expr::rank() + offset) % rank_count; }};
  }

  std::int64_t radix() const { return radix_; }

  /// Distances of the levels, from the root down.
  std::vector<std::int64_t> levels() const {
    std::vector<std::int64_t> distances;
    for (std::int64_t d = 1; d < size_; d *= radix_) distances.push_back(d);
    return distances;
  }

  /// Parents send `source`, children receive `target`; the sends come last.
  void down(RoundBuilder& round, std::int64_t d, const Span& source, const Span& target) const {
    for (std::int64_t i = 1; i < radix_ && i * d < size_; ++i) {
      among(round, i * d, (i + 1) * d).lane(lane(i)).receive(target, rank_at_(-i * d));
    }
    for (std::int64_t i = 1; i < radix_ && i * d < size_; ++i) {
      among(round, 0, std::min(d, size_ - i * d)).lane(lane(i)).send(source, rank_at_(i * d));
    }
  }

  /// Children send what they have summed, parents add it to theirs, in `out`. A rank that has
  /// received nothing on a lower level still has its data in `in`.
  void up(RoundBuilder& round, std::int64_t d, std::int64_t chunks) const {
    const std::int64_t summed = std::max<std::int64_t>(0, size_ - radix_ * d);
    const Span sum = out(0, chunks), input = in(0, chunks);
    for (std::int64_t i = 1; i < radix_ && i * d < size_; ++i) {
      const std::int64_t first = i * d, last = std::min(first + d, size_);
      const Expr parent = rank_at_(-first);
      if (first < summed)
        among(round, first, std::min(last, summed)).lane(lane(i)).send(sum, parent);
      if (summed < last)
        among(round, std::max(first, summed), last).lane(lane(i)).send(input, parent);
    }
    const std::int64_t parents = std::min(d, size_ - d);
    if (summed > 0) {
      among(round, 0, std::min(parents, summed)).lane(0).receive_reduce(sum, sum, rank_at_(d));
      round.then();  // one of the two takes part; what follows is joined to either
    }
    if (summed < parents) {
      among(round, summed, parents).lane(0).receive_reduce(sum, input, rank_at_(d));
      round.then();
    }
    for (std::int64_t i = 2; i < radix_ && i * d < size_; ++i) {
      among(round, 0, std::min(d, size_ - i * d)).lane(lane(i));
      round.then().receive_reduce(sum, sum, rank_at_(i * d));
    }
  }

 private:
  static int lane(std::int64_t child) { return static_cast<int>(child) - 1; }
  RoundBuilder& among(RoundBuilder& round, std::int64_t first, std::int64_t last) const {
    return round.always().when(position_, first, std::min(last, size_));
  }

  std::int64_t size_, radix_;
  Expr position_;
  std::function<Expr(std::int64_t)> rank_at_;
};

}  // namespace farandole
