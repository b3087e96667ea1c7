// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "unit/algorithms/all_schedules.hpp"
#include "unit/algorithms/reference_executor.hpp"

namespace farandole {
namespace {

// What a rank's chunk holds, written out: "((0+1)+2)".
using Cell = std::tuple<std::int64_t, Buffer, std::int64_t>;

// Runs steps on texts, every send at once with its contents copied; the schedules are known to be
// right, so that only the order of operands is in question.
class TextExecutor {
 public:
  explicit TextExecutor(const Schedule& schedule) : steps_(expand(schedule)) {}

  // The text in out[chunk] of a rank at the end.
  std::string result(std::int64_t rank, std::int64_t chunk) {
    if (round_.empty()) run();
    return cells_[{rank, Buffer::kOut, chunk}];
  }

 private:
  void run() {
    round_.resize(steps_.ranks.size());
    for (std::size_t idle = 0; idle < round_.size();) {
      idle = 0;
      for (std::size_t r = 0; r < round_.size(); ++r) idle += advance(r) ? 0 : 1;
    }
  }

  // One round of one rank, if all it receives is there; its sends go out on the first attempt.
  bool advance(std::size_t r) {
    if (round_[r] == steps_.ranks[r].size()) return false;
    const ConcreteRound& round = steps_.ranks[r][round_[r]];
    const auto rank = static_cast<std::int64_t>(r);
    if (sent_.emplace(r, round_[r]).second) {
      for (const ConcreteAction& action : round) {
        if (action.kind == Action::Kind::kSend) {
          channels_[{rank, action.peer, action.lane}].push_back(read(rank, *action.source));
        }
      }
    }
    for (const ConcreteAction& action : round) {
      if (action.kind != Action::Kind::kReceive) continue;
      if (channels_[{action.peer, rank, action.lane}].empty()) return false;
    }
    for (const ConcreteAction& action : round) {
      if (action.kind == Action::Kind::kSend) continue;
      std::vector<std::string> incoming;
      if (action.kind == Action::Kind::kLocal) {
        incoming = read(rank, *action.source);
      } else {
        auto& channel = channels_[{action.peer, rank, action.lane}];
        incoming = channel.front();
        channel.erase(channel.begin());
      }
      write(rank, action, incoming);
    }
    ++round_[r];
    return true;
  }

  std::vector<std::string> read(std::int64_t rank, const ConcreteSpan& span) {
    std::vector<std::string> texts;
    for (std::int64_t i = 0; i < span.count; ++i) {
      const bool input = span.buffer == Buffer::kIn;
      texts.push_back(input ? std::to_string(rank) : cells_[{rank, span.buffer, span.first + i}]);
    }
    return texts;
  }

  void write(std::int64_t rank, const ConcreteAction& action,
             const std::vector<std::string>& incoming) {
    std::vector<std::string> operand;
    if (action.operand) operand = read(rank, *action.operand);
    for (std::size_t i = 0; i < incoming.size(); ++i) {
      const std::string& a = action.incoming_first ? incoming[i] : action.operand ? operand[i] : "";
      const std::string& b = action.incoming_first ? operand[i] : incoming[i];
      const Cell cell{rank, action.target->buffer,
                      action.target->first + static_cast<std::int64_t>(i)};
      cells_[cell] = action.operand ? "(" + a + "+" + b + ")" : b;
    }
  }

  const Expanded steps_;
  std::map<Cell, std::string> cells_;
  std::map<std::tuple<std::int64_t, std::int64_t, int>, std::vector<std::vector<std::string>>>
      channels_;
  std::set<std::pair<std::size_t, std::size_t>> sent_;
  std::vector<std::size_t> round_;
};

std::string left_to_right(std::int64_t p) {
  std::string text = "0";
  for (std::int64_t rank = 1; rank < p; ++rank)
    text = "(" + text + "+" + std::to_string(rank) + ")";
  return text;
}

// Goal: whatever the algorithm, every chunk is summed from the left in the order of the ranks.
// Method: execute the schedules on texts and read the results.
TEST(Deterministic, SumsFromTheLeftInTheOrderOfRanks) {
  for (const std::int64_t p : {1, 2, 3, 4, 5, 6, 8, 9, 12}) {
    for (const AlgorithmInfo* info : algorithms()) {
      if (!reduces(info->collective)) continue;
      for (const std::int64_t root : roots_of(info->collective, p)) {
        const Schedule schedule = built(info->collective, info->name, p, root, true);
        EXPECT_EQ(schedule.algorithm, info->name);
        TextExecutor executor(schedule);
        for (std::int64_t rank = 0; rank < p; ++rank) {
          if (info->collective == Collective::kReduce && rank != root) continue;
          for (std::int64_t c = 0; c < chunks_of(schedule, Buffer::kOut); ++c) {
            EXPECT_EQ(executor.result(rank, c), left_to_right(p))
                << described(schedule) << ", rank " << rank << ", chunk " << c;
          }
        }
      }
    }
  }
}

// Goal: the test above can fail. Method: without the promise, the ring starts anywhere.
TEST(Deterministic, IsNotWhatTheRingDoesByItself) {
  TextExecutor executor(built(Collective::kAllreduce, "ring", 4));
  EXPECT_NE(executor.result(0, 0), executor.result(0, 1));
}

// Goal: the schedules compute what they promise, apart from any proof.
TEST(Deterministic, EqualsAPlainSum) {
  for (std::int64_t p = 1; p <= 9; ++p) {
    for (const AlgorithmInfo* info : algorithms()) {
      if (!reduces(info->collective)) continue;
      const Schedule schedule = built(info->collective, info->name, p, 0, true);
      const auto wrong = judge(expand(schedule));
      EXPECT_FALSE(wrong) << described(schedule) << ": " << *wrong;
    }
  }
}

}  // namespace
}  // namespace farandole
