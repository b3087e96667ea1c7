// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "simulator/rounds.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "simulator/compiled_round.hpp"
#include "simulator/disjoint_sets.hpp"
#include "simulator/occupancy.hpp"

namespace farandole {
namespace {

using Instruction = Workload::Instruction;
using Index = std::size_t;

constexpr Index index_of(std::int32_t rank) {
  return static_cast<Index>(rank);
}

class Clocks {
 public:
  Clocks(const Network& network, PatternTable& patterns, const SimulatedCall& call,
         const SimulationOptions& options)
      : call_(call),
        options_(options),
        workload_(*call.schedule, call.bytes, network.machine()),
        compiler_(network, patterns, workload_, call.ranks),
        occupancy_(network),
        compiled_(workload_.instructions().size()),
        clocks_(static_cast<Index>(workload_.rank_count()), 0.0),
        stage_of_(clocks_.size(), -1) {
    if (!call.start_seconds.empty()) clocks_ = call.start_seconds;
    if (!options.slow_down.empty()) slow_down_.resize(clocks_.size());
    for (Index r = 0; r < slow_down_.size(); ++r) {
      slow_down_[r] = options.slow_down[call.ranks.empty() ? r : index_of(call.ranks[r])];
    }
  }

  Result<PathResult> run() {
    if (auto ran = run(0, workload_.instructions().size()); !ran) return std::move(ran).error();
    if (!compiler_.nobody_waits()) {
      return Error{ErrorKind::kInvalidArgument, "schedule \"" + call_.schedule->algorithm +
                                                    "\" never ends: " + compiler_.who_waits() +
                                                    ", and nobody meets it."};
    }
    enter_stage(workload_.stage_count());
    return result();
  }

 private:
  // One round as it was last compiled, and the counters for which it was.
  struct Compiled {
    Counters counters{};
    bool is_kept = false;
    CompiledRound round;
  };

  Result<void> run(Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      const Instruction& instruction = workload_.instructions()[i];
      Result<void> done;
      switch (instruction.kind) {
        case Instruction::Kind::kRound:
          done = round(i);
          break;
        case Instruction::Kind::kLocal:
          done = local(instruction);
          break;
        case Instruction::Kind::kLoopBegin:
          done = loop(i);
          i = instruction.jump;
          break;
        case Instruction::Kind::kLoopEnd:
          break;
      }
      if (!done) return done;
    }
    return {};
  }

  Result<void> local(const Instruction& instruction) {
    if (!compiler_.nobody_waits()) {
      return Error{ErrorKind::kUnsupported, "schedule \"" + call_.schedule->algorithm +
                                                "\": " + compiler_.who_waits() +
                                                " while all ranks work; path \"events\" can."};
    }
    for (Index r = 0; r < clocks_.size(); ++r) clocks_[r] += instruction.seconds * slow(r);
    return {};
  }

  Result<void> loop(Index at) {
    const Instruction& begin = workload_.instructions()[at];
    const auto depth = static_cast<Index>(begin.depth);
    const bool may_repeat = options_.skip_repeats && repeats(at + 1, begin.jump, begin.depth);
    std::vector<double> before;
    std::vector<double> step;  // [rank]: what the last iteration added, if that will not change
    std::vector<std::uint32_t> groups;
    for (std::int64_t i = 0; i < begin.iterations; ++i) {
      counters_[depth] = i;
      // The first one may begin a stage; two more are needed to see that nothing changes.
      const bool looks = may_repeat && i > 0 && begin.iterations - i > 2;
      if (looks) before = clocks_;
      if (auto done = run(at + 1, begin.jump); !done) return done;
      if (!looks) continue;
      const bool was_steady = !step.empty();
      if (groups.empty()) groups = groups_in(at + 1, begin.jump);
      find_steady_step(groups, before, step);
      if (!was_steady || step.empty() || !compiler_.nobody_waits()) continue;
      skip(at + 1, begin.jump, step, begin.iterations - i - 1);
      break;
    }
    counters_[depth] = 0;
    return {};
  }

  // Whether all iterations of a body are alike.
  bool repeats(Index begin, Index end, std::int32_t depth) const {
    for (Index i = begin; i < end; ++i) {
      if ((workload_.instructions()[i].counters >> depth & 1U) != 0) return false;
    }
    return true;
  }

  // [rank]: the number of its group. Ranks that exchange messages in a body, directly or over
  // others, are one group.
  std::vector<std::uint32_t> groups_in(Index begin, Index end) {
    DisjointSets sets(clocks_.size());
    for_each_wave(begin, end, [&](const Wave& wave) {
      for (const Wave::Message& message : wave.messages) {
        sets.join(static_cast<std::uint32_t>(message.from), static_cast<std::uint32_t>(message.to));
      }
    });
    std::vector<std::uint32_t> groups(clocks_.size());
    for (std::uint32_t r = 0; r < groups.size(); ++r) groups[r] = sets.find(r);
    return groups;
  }

  // All ranks of a group must have advanced by the same time.
  void find_steady_step(const std::vector<std::uint32_t>& groups, const std::vector<double>& before,
                        std::vector<double>& step) {
    const double latest = *std::max_element(clocks_.begin(), clocks_.end());
    const double rounding = 8 * std::numeric_limits<double>::epsilon() * latest;
    step.resize(clocks_.size());
    for (Index r = 0; r < clocks_.size(); ++r) {
      const Index first = groups[r];
      step[r] = clocks_[first] - before[first];
      if (std::abs(clocks_[r] - before[r] - step[r]) <= rounding) continue;
      step.clear();
      return;
    }
  }

  void skip(Index begin, Index end, const std::vector<double>& step, std::int64_t iterations) {
    const auto times = static_cast<double>(iterations);
    for (Index r = 0; r < clocks_.size(); ++r) clocks_[r] += times * step[r];
    Index wave_count = 0;
    for_each_wave(begin, end, [&](Wave& wave) {
      wave.repeats += iterations;
      ++wave_count;
    });
    const auto [low, high] = std::minmax_element(step.begin(), step.end());
    // Groups that advance at different speeds may later share a link with another wave.
    const bool drifts = wave_count > 1 && *high - *low > 1e-12 * *high;
    occupancy_.shift(times * *high, drifts);
  }

  template <class Visit>
  void for_each_wave(Index begin, Index end, Visit visit) {
    for (Index i = begin; i < end; ++i) {
      for (Wave& wave : compiled_[i].round.waves) visit(wave);
    }
  }

  Result<void> round(Index at) {
    const Instruction& instruction = workload_.instructions()[at];
    if (static_cast<Index>(instruction.stage) >= stage_clocks_.size()) {
      enter_stage(static_cast<Index>(instruction.stage));
    }
    Compiled& compiled = compiled_[at];
    Counters key = counters_;
    for (Index d = 0; d < key.size(); ++d) {
      if ((instruction.counters >> d & 1U) == 0) key[d] = 0;
    }
    if (!compiled.is_kept || compiled.counters != key) {
      retire(compiled.round);
      auto fresh = compiler_.compile(instruction, counters_);
      if (!fresh) return std::move(fresh).error();
      compiled.round = *std::move(fresh);
      compiled.counters = key;
      // The waiting actions are different every time.
      compiled.is_kept = compiled.round.waiting.empty() && compiled.round.resumed.empty();
    }
    execute(compiled.round);
    return {};
  }

  void execute(CompiledRound& round) {
    ready_.swap(clocks_);
    ready_.resize(round.slot_count);
    for (const auto& [slot, time] : round.resumed) ready_[slot] = time;
    const bool begins = begin_stage(round);
    clocks_.assign(ready_.begin(), ready_.begin() + std::ssize(stage_of_));
    for (Wave& wave : round.waves) {
      if (wave.is_simple && !begins && slow_down_.empty() && wave.locals.empty()) {
        run_simple(wave);
      } else {
        run_general(wave, begins);
      }
      ++wave.repeats;
      occupancy_.occupy(wave);
    }
    reduce_in_order(round);
    for (WaitingAction& waiting : round.waiting) {
      const Index rank = index_of(waiting.rank);
      waiting.ready = ready_[waiting.slot];
      waiting.begins_stage = begins && begins_[rank] != 0;
    }
    compiler_.keep_waiting(round);
  }

  void reduce_in_order(const CompiledRound& round) {
    double finished = 0;  // when the previous reduction ended
    for (const ChainedReceive& receive : round.chains) {
      const Wave::Message& message = round.waves[receive.wave].messages[receive.message];
      const Index rank = index_of(message.to);
      const double begin = receive.is_first ? message.end : std::max(finished, message.end);
      finished = begin + receive.reduce_seconds * slow(rank);
      clocks_[rank] = std::max(clocks_[rank], finished);
    }
  }

  // Ranks that reach the first messages of a stage pay for its call.
  bool begin_stage(const CompiledRound& round) {
    bool any = false;
    if (round.call_seconds.empty()) return any;
    begins_.assign(stage_of_.size(), 0);
    for (Index r = 0; r < stage_of_.size(); ++r) {
      if (round.call_seconds[r] < 0 || stage_of_[r] == round.stage) continue;
      stage_of_[r] = round.stage;
      begins_[r] = 1;
      ready_[r] += round.call_seconds[r] * slow(r);
      any = true;
    }
    return any;
  }

  void run_simple(Wave& wave) {
    for (Wave::Message& message : wave.messages) {
      const Index from = index_of(message.from), to = index_of(message.to);
      message.begin = std::max(ready_[from], ready_[to]) + message.head_seconds;
      message.end = message.begin + message.transfer_seconds;
      clocks_[from] = std::max(clocks_[from], message.end);
      clocks_[to] = std::max(clocks_[to], message.end + message.reduce_seconds);
    }
  }

  void run_general(Wave& wave, bool begins) {
    const auto finish = [this](Index rank, std::uint32_t slot, double time) {
      clocks_[rank] = std::max(clocks_[rank], time);
      if (slot != kNoSlot) ready_[slot] = time;
    };
    for (Wave::Message& message : wave.messages) {
      const Index from = index_of(message.from), to = index_of(message.to);
      const bool fills =
          message.sender_waited ? message.sender_began : begins && begins_[from] != 0;
      const double factor = fills ? 1 + message.fill_chunks : 1;
      message.begin =
          std::max(ready_[message.from_slot], ready_[message.to_slot]) + message.head_seconds;
      message.end = message.begin + factor * message.transfer_seconds;
      finish(from, message.from_done, message.end);
      finish(to, message.to_done, message.end + message.reduce_seconds * slow(to));
    }
    for (const Wave::Local& local : wave.locals) {
      const Index rank = index_of(local.rank);
      finish(rank, local.done, ready_[local.slot] + local.seconds * slow(rank));
    }
  }

  void enter_stage(Index stage) {
    while (stage_clocks_.size() <= stage) stage_clocks_.push_back(clocks_);
  }

  // Adds up what the messages of a round have moved; the round does not run again.
  void retire(CompiledRound& round) {
    for (Wave& wave : round.waves) {
      const auto times = static_cast<double>(wave.repeats);
      messages_ += wave.repeats * std::ssize(wave.messages);
      for (const Wave::Message& message : wave.messages) bytes_ += times * message.bytes;
      occupancy_.retire(wave);
    }
    round.waves.clear();
  }

  PathResult result() {
    for (Compiled& compiled : compiled_) retire(compiled.round);
    PathResult result;
    const auto last = std::max_element(clocks_.begin(), clocks_.end());
    const auto rank = static_cast<Index>(last - clocks_.begin());
    result.seconds = *last;
    result.exact = occupancy_.exact();
    result.messages = messages_;
    result.bytes = bytes_;
    result.link_bytes = occupancy_.link_bytes();
    result.stage_seconds.emplace_back();
    for (Index stage = 0; stage < workload_.stage_count(); ++stage) {
      result.stage_seconds[0].push_back(stage_clocks_[stage + 1][rank] -
                                        stage_clocks_[stage][rank]);
    }
    result.finish_seconds.push_back(std::move(clocks_));
    return result;
  }

  double slow(Index rank) const { return slow_down_.empty() ? 1.0 : slow_down_[rank]; }

  const SimulatedCall& call_;
  const SimulationOptions& options_;
  Workload workload_;
  RoundCompiler compiler_;
  Occupancy occupancy_;
  std::vector<Compiled> compiled_;                 // [instruction]
  std::vector<double> clocks_;                     // [rank]
  std::vector<std::int32_t> stage_of_;             // [rank]: the last one begun
  std::vector<double> slow_down_;                  // [rank]; empty: 1
  std::vector<double> ready_;                      // [slot] of the round that runs
  std::vector<std::uint8_t> begins_;               // [rank]: begins a stage in this round
  std::vector<std::vector<double>> stage_clocks_;  // [stage][rank], when it begins; the last: ends
  Counters counters_{};
  std::int64_t messages_ = 0;
  double bytes_ = 0;
};

}  // namespace

Result<PathResult> simulate_rounds(const Network& network, PatternTable& patterns,
                                   const SimulatedCall& call, const SimulationOptions& options) {
  return Clocks(network, patterns, call, options).run();
}

}  // namespace farandole
