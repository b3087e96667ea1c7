// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "simulator/message_cost.hpp"
#include "simulator/patterns.hpp"
#include "simulator/simulate.hpp"
#include "simulator/workload.hpp"

namespace farandole {

inline constexpr std::uint32_t kNoSlot = 0xffffffff;

/// Messages and local work that may begin together, as far as the order within a round allows. A
/// slot holds the time from which an action may start: slot r is rank r's entry into the round,
/// higher slots are the ends of actions that other actions wait for.
struct Wave {
  struct Message {
    std::int32_t from, to;                                 // ranks of the schedule
    std::uint32_t from_slot, to_slot;                      // when ready
    std::uint32_t from_done = kNoSlot, to_done = kNoSlot;  // set when finished, if awaited
    double head_seconds, transfer_seconds, bytes;
    double reduce_seconds;
    double fill_chunks;          // if its sender begins a stage
    bool sender_waited = false;  // since an earlier round,
    bool sender_began = false;   // in which it began a stage
    double begin = 0, end = 0;   // of the transfer when it last ran
  };
  struct Local {
    std::int32_t rank;
    std::uint32_t slot, done;
    double seconds;
  };
  std::vector<Message> messages;
  std::vector<Local> locals;
  std::shared_ptr<const MessagePattern> pattern;
  std::vector<std::uint32_t> flows;  // [flow of pattern]: its message
  bool is_simple = true;             // every slot is that of the rank's entry
  std::int64_t repeats = 0;          // how often it ran
  std::vector<double> group_end;     // [group of pattern]: when it last ended
};

/// An action whose other side is in a later round.
struct WaitingAction {
  std::int32_t rank = 0;
  TimedAction action;
  std::uint32_t slot = 0;     // of this round: when it is ready
  double ready = 0;           // the same, once the round has run
  bool begins_stage = false;  // likewise
  MessageCounts counts;       // of its rank in this round
};

/// A receive of a chain whose reductions run one after the other.
struct ChainedReceive {
  std::uint32_t wave, message;
  double reduce_seconds;
  bool is_first = false;  // of its chain
};

struct CompiledRound {
  std::vector<Wave> waves;
  std::vector<ChainedReceive> chains;  // one after the other; empty if no reduction takes time
  std::int32_t stage = 0;
  std::uint32_t slot_count = 0;
  std::vector<WaitingAction> waiting;                     // from this round on
  std::vector<std::pair<std::uint32_t, double>> resumed;  // slots of those that waited, and when
  std::vector<double>
      call_seconds;  // [rank]: of a stage that begins here; -1: no messages. Or empty
};

/// Writes out rounds, all ranks at once, and matches sends with receives.
class RoundCompiler {
 public:
  RoundCompiler(const Network& network, PatternTable& patterns, Workload& workload,
                std::span<const std::int32_t> network_ranks);

  /// Errors    those of Workload::round(); kUnsupported, see Simulator::run(); kInvalidArgument:
  ///           actions of the round wait for each other.
  Result<CompiledRound> compile(const Workload::Instruction& instruction, const Counters& counters);
  /// Keeps the actions that still wait after `round` has run.
  void keep_waiting(const CompiledRound& round);
  bool nobody_waits() const { return waiting_.empty(); }
  /// One of the actions that wait, for an error message.
  std::string who_waits() const;

 private:
  struct Draft;
  using Key = std::tuple<std::int32_t, std::int32_t, std::int32_t, Action::Kind>;
  static Key key_of(std::int32_t rank, const TimedAction& action);

  Result<void> check_idle(const TimedRound& round) const;
  void match(Draft& draft);
  bool resume(Draft& draft, std::int32_t rank, std::uint32_t action);
  Result<void> order(Draft& draft);
  void add_operation(Draft& draft, std::uint32_t action);
  void add_message(Draft& draft, Wave& wave, std::uint32_t action);
  void add_chains(Draft& draft);
  void add_others(const Draft& draft, std::uint32_t send, std::uint32_t receive,
                  MessagePrice& cost) const;
  std::uint32_t done_slot(Draft& draft, std::uint32_t action);
  void solve(Wave& wave);
  std::vector<double> calls(const TimedRound& round) const;
  std::int32_t network_rank(std::int32_t rank) const {
    return ranks_.empty() ? rank : ranks_[static_cast<std::size_t>(rank)];
  }

  const Network& network_;
  PatternTable& patterns_;
  Workload& workload_;
  std::span<const std::int32_t> ranks_;
  bool stages_cost_ = false, counts_matter_ = false;
  std::map<Key, std::deque<WaitingAction>> waiting_;
  std::vector<std::int32_t> waiting_count_;  // [rank]
  std::vector<std::int32_t> links_;          // of one message
};

}  // namespace farandole
