// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/verify/commute.hpp"

#include <optional>

#include "schedule/verify/symmetry.hpp"
#include "schedule/verify/turning.hpp"

namespace farandole {
namespace {

// Checks one schedule against one rotation.
class Check {
 public:
  Check(const Schedule& schedule, const Rotation& rotation)
      : schedule_(schedule), rotation_(rotation) {}

  bool holds() { return inputs_commute() && holds(schedule_.items); }
  /// Actions whose spans stay in place while their chunks are permuted.
  const std::vector<const Action*>& covering() const { return covering_; }

 private:
  enum class Way : std::uint8_t { kMoves, kCovers };

  bool inputs_commute() const {
    if (has_root(schedule_.collective)) return false;
    const bool shared = schedule_.collective == Collective::kAllreduce;
    const bool nothing = schedule_.collective == Collective::kBarrier;
    // Chunks that belong to ranks turn with the ranks.
    return shared || nothing || rotation_.chunk_stride == rotation_.rank_stride;
  }

  bool holds(const std::vector<Item>& items) {
    for (const Item& item : items) {
      if (const auto* round = std::get_if<Round>(&item)) {
        for (const Action& action : round->actions) {
          if (!holds(action)) return false;
        }
        continue;
      }
      const Loop& loop = *std::get<std::shared_ptr<const Loop>>(item);
      if (loop.count < 1) continue;
      loops_.push_back(loop.count);
      const bool body = holds(loop.body);
      loops_.pop_back();
      if (!body) return false;
    }
    return true;
  }

  bool holds(const Action& action) {
    for (const Guard& guard : action.when) {
      if (!fixed(guard.value) || !fixed(guard.low) || !fixed(guard.high)) return false;
    }
    if (action.kind != Action::Kind::kLocal) {
      const Turning peer = read(action.peer).turning();
      if (peer.kind != Turning::Kind::kTurns || peer.by != rotation_.rank_stride) return false;
    }
    std::optional<Way> way;
    for (const auto* span : {&action.source, &action.target, &action.operand}) {
      if (!*span) continue;
      const std::optional<Way> mine = way_of(**span);
      if (!mine || (way && *way != *mine)) return false;
      way = mine;
    }
    if (way == Way::kCovers) covering_.push_back(&action);
    return true;
  }

  std::optional<Way> way_of(const Span& span) const {
    if (!fixed(span.count)) return std::nullopt;
    if (span.buffer != Buffer::kScratch) {
      if (span.shape != span.first) return std::nullopt;
      const bool whole = chunks_of(schedule_, span.buffer) == schedule_.chunk_count;
      return way_at(span.first, span.count, whole ? rotation_.chunk_stride : 0);
    }
    const auto way = way_at(span.first, span.count, rotation_.scratch_stride);
    if (!chunks_differ_in_length(schedule_) && fixed(span.shape)) return way;
    const auto shape = way_at(span.shape, span.count, rotation_.chunk_stride);
    return shape == way ? way : std::nullopt;
  }

  std::optional<Way> way_at(const Expr& first, const Expr& count, std::int64_t stride) const {
    const TurningExpr at = read(first), length = read(count);
    const Turning turning = at.turning();
    if (stride == 0) {
      return turning.kind == Turning::Kind::kFixed ? std::optional(Way::kMoves) : std::nullopt;
    }
    if (turning.kind == Turning::Kind::kTurns && turning.by == stride) {
      const bool together = at.residue(stride).high + length.range().high <= stride;
      return together ? std::optional(Way::kMoves) : std::nullopt;
    }
    const std::int64_t turn = stride * rotation_.size;
    const bool covers = turning.kind == Turning::Kind::kFixed && at.residue(turn).high == 0 &&
                        length.residue(turn).high == 0;
    return covers ? std::optional(Way::kCovers) : std::nullopt;
  }

  bool fixed(const Expr& expr) const { return read(expr).turning().kind == Turning::Kind::kFixed; }
  TurningExpr read(const Expr& expr) const {
    return TurningExpr(expr, rotation_, schedule_.rank_count, loops_);
  }

  const Schedule& schedule_;
  const Rotation& rotation_;
  std::vector<std::int64_t> loops_;
  std::vector<const Action*> covering_;
};

}  // namespace

Commutation commuting_rotations(const Schedule& schedule) {
  constexpr std::size_t kRotationsMax = 32;
  Commutation result;
  if (schedule.rotations.size() > kRotationsMax || !Symmetry::well_formed(schedule)) return result;
  for (const Rotation& rotation : schedule.rotations) {
    Check check(schedule, rotation);
    if (!check.holds()) continue;
    for (const Action* action : check.covering()) {
      result.covers[action] |= std::uint32_t{1} << result.rotations.size();
    }
    result.rotations.push_back(rotation);
  }
  return result;
}

}  // namespace farandole
