// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "planner/cost.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "algorithms/registry.hpp"
#include "schedule/expand.hpp"

namespace farandole {
namespace {

struct Line {
  double alpha, beta;  // seconds, seconds per byte
};

/// Walks what a schedule says, action by action, with a clock per rank. A message starts when both
/// ends have entered its round, and takes as long as all bytes that the busier of its two ports
/// moves in that round.
class ClockWalk {
 public:
  ClockWalk(const Schedule& schedule, double bytes)
      : expanded_(expand(schedule)),
        chunk_(bytes / static_cast<double>(schedule.chunk_count)),
        clock_(expanded_.ranks.size()) {
    pair_messages();
  }

  double seconds(const Line& line) {
    line_ = line;
    std::ranges::fill(clock_, 0);
    round_.assign(clock_.size(), 0);
    entered_.clear();
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < clock_.size(); ++rank) {
        while (round_[rank] < expanded_.ranks[rank].size() && finish(rank)) moved = true;
      }
    }
    for (std::size_t rank = 0; rank < clock_.size(); ++rank) {
      EXPECT_EQ(round_[rank], expanded_.ranks[rank].size()) << "rank " << rank << " never ends";
    }
    return *std::ranges::max_element(clock_);
  }

 private:
  using Channel = std::tuple<std::int64_t, std::int64_t, int>;  // from, to, lane
  struct End {
    std::size_t rank, round;
    double bytes;
  };

  double bytes_of(const ConcreteAction& action) const {
    const auto& span = action.kind == Action::Kind::kSend ? action.source : action.target;
    return span ? static_cast<double>(span->count) * chunk_ : 0;
  }

  void pair_messages() {
    for (std::size_t rank = 0; rank < clock_.size(); ++rank) {
      for (std::size_t round = 0; round < expanded_.ranks[rank].size(); ++round) {
        for (const ConcreteAction& action : expanded_.ranks[rank][round]) {
          if (action.kind == Action::Kind::kLocal) continue;
          const bool sends = action.kind == Action::Kind::kSend;
          const auto self = static_cast<std::int64_t>(rank);
          const Channel channel = sends ? Channel{self, action.peer, action.lane}
                                        : Channel{action.peer, self, action.lane};
          (sends ? sent_ : received_)[channel].push_back({rank, round, bytes_of(action)});
          port_[{sends, rank, round}] += bytes_of(action);
        }
      }
    }
    for (const auto& [channel, sends] : sent_) {
      const auto& receives = received_.at(channel);
      for (std::size_t i = 0; i < sends.size(); ++i) {
        messages_[{sends[i].rank, sends[i].round}].emplace_back(sends[i], receives[i]);
        messages_[{receives[i].rank, receives[i].round}].emplace_back(sends[i], receives[i]);
      }
    }
  }

  /// Leaves the round if all who take part in it have come; entering times are kept by round.
  bool finish(std::size_t rank) {
    const std::size_t round = round_[rank];
    entered_[{rank, round}] = clock_[rank];
    double end = clock_[rank];
    for (const auto& [from, to] : messages_[{rank, round}]) {
      const End& other = from.rank == rank && from.round == round ? to : from;
      const auto came = entered_.find({other.rank, other.round});
      if (came == entered_.end()) return false;
      const double busier =
          std::max(port_.at({true, from.rank, from.round}), port_.at({false, to.rank, to.round}));
      end = std::max(end, std::max(clock_[rank], came->second) + line_.alpha + busier * line_.beta);
    }
    clock_[rank] = end;
    ++round_[rank];
    return true;
  }

  const Expanded expanded_;
  Line line_{};
  const double chunk_;
  std::vector<double> clock_;
  std::vector<std::size_t> round_;
  std::map<Channel, std::vector<End>> sent_, received_;
  std::map<std::tuple<bool, std::size_t, std::size_t>, double> port_;
  std::map<std::pair<std::size_t, std::size_t>, std::vector<std::pair<End, End>>> messages_;
  std::map<std::pair<std::size_t, std::size_t>, double> entered_;
};

/// What to ask of an algorithm over p ranks, beyond its defaults.
std::vector<std::string> specs(const AlgorithmInfo& info, std::int64_t p) {
  const std::string name(info.name);
  std::vector<std::string> list = {name};
  const auto with = [&](const std::string& options) { list.push_back(name + ":" + options); };
  if (p > 32 && p != 36 && p != 48 && p != 64) return list;
  if (info.options.find("radix") != std::string_view::npos) {
    for (const char* radix : {"2", "3", "8"}) with("radix=" + std::string(radix));
  }
  if (info.options.find("chunks") != std::string_view::npos) {
    for (const char* chunks : {"1", "3", "21"}) with("chunks=" + std::string(chunks));
  }
  if (info.options.find("layers") == std::string_view::npos) return list;
  for (std::int64_t inner = 1; inner <= p; ++inner) {
    if (p % inner != 0) continue;
    const std::string outer = std::to_string(p / inner);
    for (const char* kind : {"ring", "direct"}) {
      with("layers=" + std::to_string(inner) + kind + "/" + outer + "direct");
      with("layers=" + std::to_string(inner) + kind + "/" + outer);
    }
    if ((inner & (inner - 1)) == 0) with("layers=" + std::to_string(inner) + "halving/" + outer);
  }
  return list;
}

// Goal: the closed forms are what the schedules do, for every algorithm and number of ranks.
// Method: walk the schedule with a clock per rank; start-up alone, bytes alone, and both.
TEST(Cost, FormulasAreWhatSchedulesDo) {
  const Line lines[] = {{5e-6, 1e-10}, {1e-6, 3e-9}, {1e-12, 1e-9}};
  for (std::int64_t p = 1; p <= 64; ++p) {
    for (const AlgorithmInfo* info : algorithms()) {
      for (const std::string& spec : specs(*info, p)) {
        const double bytes = info->collective == Collective::kBarrier ? 0 : 1'000'003;
        const auto schedule = build_schedule(info->collective, spec, p, 0);
        ASSERT_TRUE(schedule) << schedule.error().message;
        ClockWalk walk(*schedule, bytes);
        for (const Line& line : lines) {
          Levels levels = Levels::uniform(p, line.alpha, line.beta);
          const auto cost = predict(info->collective, spec, bytes, levels);
          ASSERT_TRUE(cost) << cost.error().message;
          const double walked = walk.seconds(line);
          ASSERT_NEAR(cost->seconds(), walked, walked * 1e-9)
              << name(info->collective) << " " << spec << " over " << p;
        }
      }
    }
  }
}

}  // namespace
}  // namespace farandole
