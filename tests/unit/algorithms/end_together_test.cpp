// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <set>
#include <tuple>

#include "schedule/expand.hpp"
#include "schedule/passes/synchronize.hpp"
#include "unit/algorithms/all_schedules.hpp"

namespace farandole {
namespace {

using Known = std::uint64_t;  // bit r: rank r has begun, and has the same program

/// Runs rounds with messages that carry nothing but what their sender knows when it enters the
/// round; what each rank knows at its end.
class Hearsay {
 public:
  explicit Hearsay(const Schedule& schedule) : ranks_(expand(schedule).ranks) {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) known_.push_back(Known{1} << rank);
    next_.resize(ranks_.size());
  }

  std::vector<Known> run() {
    while (turn()) {
    }
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      EXPECT_EQ(next_[rank], ranks_[rank].size()) << "rank " << rank << " waits for ever";
    }
    return known_;
  }

 private:
  using Channel = std::tuple<std::size_t, std::size_t, int>;  // from, to, lane

  bool turn() {
    bool moved = false;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (next_[rank] == ranks_[rank].size()) continue;
      const ConcreteRound& round = ranks_[rank][next_[rank]];
      if (entered_.insert({rank, next_[rank]}).second) enter(rank, round);
      if (!complete(rank, round)) continue;
      for (const ConcreteAction& action : round) {
        if (action.kind != Action::Kind::kReceive) continue;
        std::deque<Known>& channel = channels_[channel_of(action.peer, rank, action.lane)];
        known_[rank] |= channel.front();
        channel.pop_front();
      }
      ++next_[rank];
      moved = true;
    }
    return moved;
  }

  void enter(std::size_t rank, const ConcreteRound& round) {
    for (const ConcreteAction& action : round) {
      if (action.kind != Action::Kind::kSend) continue;
      const auto peer = static_cast<std::size_t>(action.peer);
      channels_[{rank, peer, action.lane}].push_back(known_[rank]);
    }
  }

  bool complete(std::size_t rank, const ConcreteRound& round) {
    std::map<Channel, std::size_t> wanted;
    for (const ConcreteAction& action : round) {
      if (action.kind == Action::Kind::kReceive) {
        ++wanted[channel_of(action.peer, rank, action.lane)];
      }
    }
    return std::ranges::all_of(
        wanted, [&](const auto& want) { return channels_[want.first].size() >= want.second; });
  }

  static Channel channel_of(std::int64_t from, std::size_t to, int lane) {
    return {static_cast<std::size_t>(from), to, lane};
  }

  const std::vector<std::vector<ConcreteRound>> ranks_;
  std::vector<Known> known_;
  std::vector<std::size_t> next_;
  std::set<std::pair<std::size_t, std::size_t>> entered_;
  std::map<Channel, std::deque<Known>> channels_;
};

bool end_together(const Schedule& schedule) {
  const Known all = (Known{1} << schedule.rank_count) - 1;
  return std::ranges::all_of(Hearsay(schedule).run(), [&](Known known) { return known == all; });
}

// Goal: no collective ends on a rank before every rank has begun it with the same program; on this
// rests that an operation which ended well has been called alike by all ranks.
// Method: every algorithm with its options and roots; those with a root as the front end runs them,
// and as they are, when some must not pass, else the test would show nothing.
TEST(EndTogether, HoldsForEveryAlgorithm) {
  std::set<Collective> early;
  for (const std::int64_t p : {1, 2, 3, 4, 5, 8}) {
    for (Schedule schedule : all_schedules(p)) {
      if (has_root(schedule.collective)) {
        if (!end_together(schedule)) early.insert(schedule.collective);
        schedule = synchronized(std::move(schedule));
      }
      EXPECT_TRUE(end_together(schedule)) << described(schedule);
    }
  }
  EXPECT_EQ(early.size(), 4u);
}

// Goal: what is appended is proved with the rest, and costs two ranks one message.
TEST(EndTogether, IsProved) {
  for (const std::int64_t p : {1, 2, 3, 8, 33}) {
    for (const Schedule& schedule : default_schedules(p)) {
      const auto before = verify(schedule);
      const auto after = verify(synchronized(schedule));
      ASSERT_TRUE(before && after) << described(schedule);
      const std::int64_t added = after->proof().transfers - before->proof().transfers;
      std::int64_t rounds = 0;
      while ((std::int64_t{1} << rounds) < p) ++rounds;
      EXPECT_EQ(added, p == 2 && has_root(schedule.collective) ? 1 : p * rounds)
          << described(schedule);
      EXPECT_EQ(after->proof().reductions, before->proof().reductions);
    }
  }
}

}  // namespace
}  // namespace farandole
