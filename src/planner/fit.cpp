// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "planner/fit.hpp"

#include <map>
#include <tuple>

#include "algorithms/registry.hpp"
#include "schedule/steps.hpp"

namespace farandole {
namespace {

std::uint64_t mixed(std::uint64_t hash, std::int64_t value) {
  hash = (hash ^ static_cast<std::uint64_t>(value)) * 0x9e3779b97f4a7c15;
  return hash ^ hash >> 29;
}

/// Checks every action of every rank. The messages of a channel are hashed into one number per end.
/// The numbers of all senders are added up, and those of all receivers; the two sums must be equal.
class CountsCheck {
 public:
  explicit CountsCheck(const Schedule& schedule)
      : schedule_(schedule),
        lengths_known_(schedule.collective == Collective::kAllgather ||
                       schedule.collective == Collective::kReducescatter) {}

  bool passed() {
    const Covers nothing_turns;
    for (rank_ = 0; rank_ < schedule_.rank_count; ++rank_) {
      Steps steps(schedule_, nothing_turns, rank_);
      ConcreteRound round;
      while (steps.next(round)) {
        for (const ConcreteAction& action : round) {
          if (!sound(action)) return false;
        }
      }
      for (const auto& [channel, hash] : channels_) {
        const auto& [sends, peer, lane] = channel;
        const std::int64_t from = sends ? rank_ : peer, to = sends ? peer : rank_;
        (sends ? sent_ : received_) += mixed(mixed(mixed(hash, from), to), lane);
      }
      channels_.clear();
    }
    return sent_ == received_;
  }

 private:
  bool sound(const ConcreteAction& action) {
    for (const auto* span : {&action.source, &action.target, &action.operand}) {
      if (!*span || (*span)->buffer != Buffer::kScratch) continue;
      if (!lengths_known_ || (*span)->count != 1) return false;
    }
    const bool sends = action.kind == Action::Kind::kSend;
    if (sends && action.source && action.source->buffer != Buffer::kIn && !lengths_known_) {
      return false;
    }
    const auto& moved = sends ? action.source : action.target;
    if (action.operand && !same(*action.operand, *moved)) return false;
    if (action.kind == Action::Kind::kLocal) return same(*action.source, *action.target);
    std::uint64_t& hash = channels_[{sends, action.peer, action.lane}];
    hash = mixed(hash, moved ? moved->count : 0);
    for (std::int64_t i = 0; moved && i < moved->count; ++i) hash = mixed(hash, chunk(*moved, i));
    return true;
  }

  bool same(const ConcreteSpan& a, const ConcreteSpan& b) const {
    for (std::int64_t i = 0; i < a.count; ++i) {
      if (chunk(a, i) != chunk(b, i)) return false;
    }
    return a.count == b.count;
  }

  /// The identity of the i-th chunk of a span: the rank that it belongs to, or its sender and
  /// receiver.
  std::int64_t chunk(const ConcreteSpan& span, std::int64_t i) const {
    const bool is_in = span.buffer == Buffer::kIn;
    if (span.buffer == Buffer::kScratch) return span.shape + i;
    switch (schedule_.collective) {
      case Collective::kAllgather:
      case Collective::kGather:
        return is_in ? rank_ : span.first + i;
      case Collective::kReducescatter:
      case Collective::kScatter:
        return is_in ? span.first + i : rank_;
      default:
        return is_in ? rank_ * schedule_.rank_count + span.first + i
                     : (span.first + i) * schedule_.rank_count + rank_;
    }
  }

  const Schedule& schedule_;
  const bool lengths_known_;  // of all chunks, on all ranks
  std::int64_t rank_ = 0;
  std::map<std::tuple<bool, std::int64_t, int>, std::uint64_t> channels_;  // of this rank
  std::uint64_t sent_ = 0, received_ = 0;
};

}  // namespace

bool takes_counts(const Schedule& schedule) {
  return schedule.rank_count <= kRanksWithCountsMax && CountsCheck(schedule).passed();
}

std::string algorithms_with_counts(Collective collective, int rank_count) {
  std::string known;
  for (const AlgorithmInfo* info : algorithms()) {
    if (info->collective != collective) continue;
    const auto schedule = build_schedule(collective, info->name, rank_count, 0);
    if (!schedule || !takes_counts(*schedule)) continue;
    known += (known.empty() ? "" : ", ") + std::string(info->name);
  }
  return known;
}

}  // namespace farandole
