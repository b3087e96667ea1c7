// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "simulator/compiled_round.hpp"

#include <algorithm>

namespace farandole {
namespace {

constexpr std::uint32_t kNobody = 0xffffffff;

}  // namespace

// A round under construction. Actions are numbered over all ranks; those that have waited since an
// earlier round are appended.
struct RoundCompiler::Draft {
  TimedRound timed;
  CompiledRound result;
  std::vector<std::int32_t> rank;      // [action]
  std::vector<std::uint32_t> partner;  // [action]: the other side of a message
  std::vector<std::uint32_t> slot;     // [action]: when it is ready
  std::vector<std::uint32_t> wave;     // [action]: the first that it may be in
  std::vector<std::uint8_t> arrived;   // [message, by its send]: sides that are ready, 0 to 2
  std::vector<std::uint32_t> message;  // [action]: in its wave
  std::vector<std::uint8_t> begins;    // [appended action]: begins_stage
  std::vector<MessageCounts> counts;   // [rank, then appended action]; or empty
  std::vector<std::uint32_t> ready;    // actions to look at

  const TimedAction& at(std::uint32_t action) const { return timed.actions[action]; }
  bool follows(std::uint32_t action) const {
    return action < rank.size() && at(action).after_previous;
  }
  bool is_in_order(std::uint32_t action) const {
    return action < rank.size() && at(action).in_order;
  }
  std::size_t rank_of(std::uint32_t action) const { return static_cast<std::size_t>(rank[action]); }
};

RoundCompiler::RoundCompiler(const Network& network, PatternTable& patterns, Workload& workload,
                             std::span<const std::int32_t> network_ranks)
    : network_(network),
      patterns_(patterns),
      workload_(workload),
      ranks_(network_ranks),
      counts_matter_(counts_matter(network.machine())),
      waiting_count_(static_cast<std::size_t>(workload.rank_count()), 0) {
  for (const HopCost& hop : network.machine().hops) {
    stages_cost_ = stages_cost_ || hop.call > 0 || hop.fill_chunks > 0;
  }
}

RoundCompiler::Key RoundCompiler::key_of(std::int32_t rank, const TimedAction& action) {
  const bool sends = action.kind == Action::Kind::kSend;
  return {sends ? rank : action.peer, sends ? action.peer : rank, action.lane, action.kind};
}

Result<CompiledRound> RoundCompiler::compile(const Workload::Instruction& instruction,
                                             const Counters& counters) {
  auto timed = workload_.round(instruction, counters);
  if (!timed) return std::move(timed).error();
  Draft draft;
  draft.timed = *std::move(timed);
  if (auto idle = check_idle(draft.timed); !idle) return std::move(idle).error();
  const auto p = static_cast<std::uint32_t>(workload_.rank_count());
  draft.result.stage = instruction.stage;
  draft.result.slot_count = p;
  if (stages_cost_) draft.result.call_seconds = calls(draft.timed);
  draft.rank.resize(draft.timed.actions.size());
  draft.slot.resize(draft.rank.size());
  for (std::uint32_t r = 0; r < p; ++r) {
    for (std::uint32_t a = draft.timed.first[r]; a < draft.timed.first[r + 1]; ++a) {
      draft.rank[a] = static_cast<std::int32_t>(r);
      draft.slot[a] = r;
    }
  }
  if (counts_matter_) draft.counts = count_messages(network_, draft.timed, ranks_);
  match(draft);
  if (auto ordered = order(draft); !ordered) return std::move(ordered).error();
  add_chains(draft);
  for (Wave& wave : draft.result.waves) solve(wave);
  return std::move(draft.result);
}

Result<void> RoundCompiler::check_idle(const TimedRound& round) const {
  if (waiting_.empty()) return {};
  for (std::size_t r = 0; r < waiting_count_.size(); ++r) {
    if (waiting_count_[r] == 0 || round.first[r] == round.first[r + 1]) continue;
    return Error{ErrorKind::kUnsupported,
                 "schedule \"" + workload_.schedule().algorithm + "\": rank " + std::to_string(r) +
                     " enters a round while a message waits for a rank in another one; path "
                     "\"events\" can."};
  }
  return {};
}

void RoundCompiler::match(Draft& draft) {
  const auto count = static_cast<std::uint32_t>(draft.rank.size());
  draft.partner.assign(count, kNobody);
  // Sends by rank and lane; in most rounds they are in this order anyway.
  using Entry = std::pair<std::uint64_t, std::uint32_t>;
  std::vector<Entry> sends;
  const auto entry = [](std::int32_t rank, std::int32_t lane) {
    return static_cast<std::uint64_t>(rank) << 32 | static_cast<std::uint32_t>(lane);
  };
  for (std::uint32_t a = 0; a < count; ++a) {
    const TimedAction& action = draft.at(a);
    if (action.kind == Action::Kind::kLocal || resume(draft, draft.rank[a], a)) continue;
    if (action.kind == Action::Kind::kSend) {
      sends.emplace_back(entry(draft.rank[a], action.lane), a);
    }
  }
  if (!std::is_sorted(sends.begin(), sends.end())) std::sort(sends.begin(), sends.end());
  std::vector<std::uint32_t> first(static_cast<std::size_t>(workload_.rank_count()) + 1, 0);
  for (const Entry& send : sends) ++first[(send.first >> 32) + 1];
  for (std::size_t r = 1; r < first.size(); ++r) first[r] += first[r - 1];
  for (std::uint32_t a = 0; a < count; ++a) {
    const TimedAction& action = draft.at(a);
    if (action.kind != Action::Kind::kReceive || draft.partner[a] != kNobody) continue;
    const auto peer = static_cast<std::size_t>(action.peer);
    const auto end = sends.begin() + first[peer + 1];
    const Entry sought{entry(action.peer, action.lane), 0};
    for (auto send = std::lower_bound(sends.begin() + first[peer], end, sought);
         send != end && send->first == sought.first; ++send) {
      if (draft.at(send->second).peer != draft.rank[a]) continue;
      if (draft.partner[send->second] != kNobody) continue;
      draft.partner[a] = send->second;
      draft.partner[send->second] = a;
      break;
    }
  }
}

// Pairs the action with one that has waited since an earlier round, if there is one.
bool RoundCompiler::resume(Draft& draft, std::int32_t rank, std::uint32_t action) {
  if (waiting_.empty()) return false;
  const TimedAction& here = draft.at(action);
  const bool sends = here.kind == Action::Kind::kSend;
  Key other = key_of(rank, here);
  std::get<3>(other) = sends ? Action::Kind::kReceive : Action::Kind::kSend;
  const auto known = waiting_.find(other);
  if (known == waiting_.end()) return false;
  const WaitingAction waited = known->second.front();
  known->second.pop_front();
  if (known->second.empty()) waiting_.erase(known);
  --waiting_count_[static_cast<std::size_t>(waited.rank)];
  const auto number = static_cast<std::uint32_t>(draft.timed.actions.size());
  draft.timed.actions.push_back(waited.action);
  draft.timed.actions.back().after_previous = draft.timed.actions.back().in_order = false;
  draft.rank.push_back(waited.rank);
  draft.slot.push_back(draft.result.slot_count++);
  draft.begins.push_back(waited.begins_stage ? 1 : 0);
  if (counts_matter_) draft.counts.push_back(waited.counts);
  draft.result.resumed.emplace_back(draft.slot.back(), waited.ready);
  draft.partner.push_back(action);
  draft.partner[action] = number;
  return true;
}

// Waves by Kahn's topological order: a message waits for the actions that its two actions follow.
Result<void> RoundCompiler::order(Draft& draft) {
  const auto count = static_cast<std::uint32_t>(draft.rank.size());
  draft.wave.assign(count, 0);
  draft.message.assign(count, 0);
  draft.arrived.assign(count, 0);
  std::uint32_t looked_at = 0, waiting = 0;
  for (std::uint32_t a = 0; a < count; ++a) {
    if (!draft.follows(a)) draft.ready.push_back(a);
  }
  for (; looked_at < draft.ready.size(); ++looked_at) {
    const std::uint32_t a = draft.ready[looked_at];
    const TimedAction& action = draft.at(a);
    if (action.in_order && draft.follows(a + 1)) {
      return Error{ErrorKind::kUnsupported,
                   "schedule \"" + workload_.schedule().algorithm + "\": rank " +
                       std::to_string(draft.rank[a]) +
                       " has an action that follows several receives; path \"events\" can."};
    }
    if (action.kind != Action::Kind::kLocal) {
      const std::uint32_t other = draft.partner[a];
      if (other == kNobody) {
        if (draft.follows(a + 1) || draft.is_in_order(a + 1)) {
          return Error{ErrorKind::kUnsupported,
                       "schedule \"" + workload_.schedule().algorithm + "\": rank " +
                           std::to_string(draft.rank[a]) +
                           " has an action that follows a message of another round; path "
                           "\"events\" can."};
        }
        draft.result.waiting.push_back({draft.rank[a], action, draft.slot[a]});
        if (counts_matter_) draft.result.waiting.back().counts = draft.counts[draft.rank_of(a)];
        ++waiting;
        continue;
      }
      const std::uint32_t send = action.kind == Action::Kind::kSend ? a : other;
      draft.wave[a] = draft.wave[other] = std::max(draft.wave[a], draft.wave[other]);
      if (++draft.arrived[send] < 2) continue;
    }
    add_operation(draft, a);
  }
  if (looked_at == count) return {};
  return Error{ErrorKind::kInvalidArgument, "schedule \"" + workload_.schedule().algorithm +
                                                "\": actions of one round wait for each other."};
}

void RoundCompiler::add_operation(Draft& draft, std::uint32_t action) {
  const std::uint32_t number = draft.wave[action];
  std::vector<Wave>& waves = draft.result.waves;
  if (waves.size() <= number) waves.resize(number + 1);
  Wave& wave = waves[number];
  if (draft.at(action).kind == Action::Kind::kLocal) {
    const std::uint32_t slot = draft.slot[action];
    wave.locals.push_back(
        {draft.rank[action], slot, done_slot(draft, action), draft.at(action).local_seconds});
    return;
  }
  add_message(draft, wave, action);
}

// The slot that the next action of the chain waits for, if there is one; that action may be looked
// at from now on.
std::uint32_t RoundCompiler::done_slot(Draft& draft, std::uint32_t action) {
  const std::uint32_t next = action + 1;
  if (next >= draft.rank.size() || !draft.follows(next)) return kNoSlot;
  draft.slot[next] = draft.result.slot_count++;
  draft.wave[next] = std::max(draft.wave[next], draft.wave[action] + 1);
  draft.ready.push_back(next);
  return draft.slot[next];
}

void RoundCompiler::add_message(Draft& draft, Wave& wave, std::uint32_t action) {
  const bool is_send = draft.at(action).kind == Action::Kind::kSend;
  const std::uint32_t send = is_send ? action : draft.partner[action];
  const std::uint32_t receive = is_send ? draft.partner[action] : action;
  const std::int32_t from = draft.rank[send], to = draft.rank[receive];
  const double bytes = draft.at(send).bytes;
  links_.clear();
  MessagePrice cost = message_cost(network_, network_rank(from), network_rank(to),
                                   workload_.stage(draft.result.stage), links_);
  if (counts_matter_) add_others(draft, send, receive, cost);
  Wave::Message message{.from = from,
                        .to = to,
                        .from_slot = draft.slot[send],
                        .to_slot = draft.slot[receive],
                        .from_done = done_slot(draft, send),
                        .to_done = done_slot(draft, receive),
                        .head_seconds = cost.head_seconds,
                        .transfer_seconds = bytes / cost.efficiency,
                        .bytes = bytes,
                        .reduce_seconds = draft.at(receive).local_seconds};
  const HopCost& hop = network_.machine().hops[static_cast<std::size_t>(cost.hop)];
  message.fill_chunks = hop.fill_chunks;
  draft.message[send] = draft.message[receive] = static_cast<std::uint32_t>(wave.messages.size());
  const std::size_t own = draft.rank.size() - draft.begins.size();  // actions of this round
  message.sender_waited = send >= own;
  message.sender_began = send >= own && draft.begins[send - own] != 0;
  wave.is_simple = wave.is_simple && message.from_slot == static_cast<std::uint32_t>(from) &&
                   message.to_slot == static_cast<std::uint32_t>(to) &&
                   message.from_done == kNoSlot && message.to_done == kNoSlot;
  if (cost.fixed_rate > 0) {
    message.transfer_seconds /= cost.fixed_rate;
  } else if (bytes > 0) {
    wave.flows.push_back(static_cast<std::uint32_t>(wave.messages.size()));
  }
  if (wave.messages.empty()) {
    const auto p = static_cast<std::size_t>(workload_.rank_count());
    wave.messages.reserve(std::min(p, draft.rank.size() / 2));
  }
  wave.messages.push_back(message);
}

// Collects the receives that reduce in order: heads of chains and those that follow them.
void RoundCompiler::add_chains(Draft& draft) {
  double longest = 0;
  std::vector<ChainedReceive>& chains = draft.result.chains;
  for (std::uint32_t a = 0; a < draft.rank.size(); ++a) {
    const bool heads = !draft.is_in_order(a) && draft.is_in_order(a + 1);
    if (!heads && !draft.is_in_order(a)) continue;
    const double seconds = draft.at(a).local_seconds;
    chains.push_back({draft.wave[a], draft.message[a], seconds, heads});
    longest = std::max(longest, seconds);
  }
  if (longest <= 0) chains.clear();
}

void RoundCompiler::add_others(const Draft& draft, std::uint32_t send, std::uint32_t receive,
                               MessagePrice& cost) const {
  const std::size_t own = draft.rank.size() - draft.begins.size();  // actions of this round
  const std::size_t ranks = draft.counts.size() - draft.begins.size();
  const auto counts = [&](std::uint32_t action) -> const MessageCounts& {
    return draft.counts[action < own ? draft.rank_of(action) : ranks + action - own];
  };
  pay_for_others(network_.machine(), counts(send), counts(receive), cost);
}

void RoundCompiler::solve(Wave& wave) {
  std::vector<MessagePattern::Pair> pairs;
  pairs.reserve(wave.flows.size());
  for (const std::uint32_t index : wave.flows) {
    const Wave::Message& message = wave.messages[index];
    pairs.push_back({network_rank(message.from), network_rank(message.to)});
  }
  wave.pattern = patterns_.find(pairs);
  for (std::size_t flow = 0; flow < wave.flows.size(); ++flow) {
    wave.messages[wave.flows[flow]].transfer_seconds /= wave.pattern->rates[flow];
  }
}

std::vector<double> RoundCompiler::calls(const TimedRound& round) const {
  std::vector<double> seconds(static_cast<std::size_t>(workload_.rank_count()), -1);
  for (std::int32_t rank = 0; rank < workload_.rank_count(); ++rank) {
    double& call = seconds[static_cast<std::size_t>(rank)];
    for (const TimedAction& action : round.of(rank)) {
      if (action.kind == Action::Kind::kLocal) continue;
      const Hop hop = network_.hop(network_rank(rank), network_rank(action.peer));
      call = std::max(call, network_.machine().hops[static_cast<std::size_t>(hop)].call);
    }
  }
  return seconds;
}

void RoundCompiler::keep_waiting(const CompiledRound& round) {
  for (const WaitingAction& waiting : round.waiting) {
    waiting_[key_of(waiting.rank, waiting.action)].push_back(waiting);
    ++waiting_count_[static_cast<std::size_t>(waiting.rank)];
  }
}

std::string RoundCompiler::who_waits() const {
  const WaitingAction& first = waiting_.begin()->second.front();
  const bool sends = first.action.kind == Action::Kind::kSend;
  return "rank " + std::to_string(first.rank) +
         (sends ? " sends to rank " : " receives from rank ") + std::to_string(first.action.peer) +
         " on lane " + std::to_string(first.action.lane);
}

}  // namespace farandole
