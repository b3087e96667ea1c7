// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

#include "schedule/builder.hpp"

namespace farandole {

/// Leaves a power of two of the ranks active, for algorithms that need one. The first 2 e ranks
/// pair up, where e is p minus the power of two: in_first() adds the odd rank's input to the even
/// one's, out_last() hands the result back. Active ranks are numbered by `position` in the order of
/// their ranks, so that lower positions hold the sums of lower ranks. Ranks are counted from
/// `root`, which is active and has position 0.
class Folding {
 public:
  explicit Folding(std::int64_t rank_count, std::int64_t root = 0)
      : positions_(
            static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(rank_count)))),
        extra_(rank_count - positions_),
        root_(root),
        rank_(root == 0 ? Expr::rank() : (Expr::rank() - root) % rank_count) {}

  std::int64_t positions() const { return positions_; }
  bool folds() const { return extra_ > 0; }
  Expr position() const { return extra_ == 0 ? rank_ : rank_ - min(rank_ / 2, extra_); }
  Expr rank_at(const Expr& position) const { return from_root(first_chunk(position)); }
  /// The first of the ranks for which the position stands, counted from the root.
  Expr first_chunk(const Expr& position) const {
    return extra_ == 0 ? position : position + min(position, extra_);
  }

  /// Limits the following actions of `round` to active ranks.
  RoundBuilder& active(RoundBuilder& round) const {
    round.always();
    return extra_ == 0 ? round : round.when(min(rank_, 2 * extra_) % 2, 0, 1);
  }
  /// Likewise to the active ranks of pairs; to the other ranks of pairs; to ranks without a pair.
  RoundBuilder& lower(RoundBuilder& round) const {
    return round.always().when(rank_, 0, 2 * extra_).when(rank_ % 2, 0, 1);
  }
  RoundBuilder& upper(RoundBuilder& round) const {
    return round.always().when(rank_, 0, 2 * extra_).when(rank_ % 2, 1, 2);
  }
  RoundBuilder& unpaired(RoundBuilder& round) const {
    return round.always().when(rank_, 2 * extra_, positions_ + extra_);
  }
  Expr partner_above() const { return from_root(rank_ + 1); }
  Expr partner_below() const { return from_root(rank_ - 1); }

  /// Where active ranks find their `chunks` chunks after in_first().
  Span input(Expr first, Expr count) const {
    return extra_ == 0 ? in(std::move(first), std::move(count))
                       : out(std::move(first), std::move(count));
  }

  void in_first(ScheduleBuilder& b, std::int64_t chunks) const {
    if (extra_ == 0) return;
    RoundBuilder round = b.round();
    lower(round).receive_reduce(out(0, chunks), in(0, chunks), partner_above());
    upper(round).send(in(0, chunks), partner_below());
    // These ranks would wait for their folded peers in the next round, so the copy takes no extra
    // time.
    unpaired(round).copy(out(0, chunks), in(0, chunks));
  }

  void out_last(ScheduleBuilder& b, std::int64_t chunks) const {
    if (extra_ == 0) return;
    RoundBuilder round = b.round();
    lower(round).send(out(0, chunks), partner_above());
    upper(round).receive(out(0, chunks), partner_below());
  }

 private:
  Expr from_root(const Expr& rank) const {
    return root_ == 0 ? rank : (rank + root_) % (positions_ + extra_);
  }

  std::int64_t positions_, extra_, root_;
  Expr rank_;  // counted from the root
};

}  // namespace farandole
