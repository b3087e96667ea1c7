// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "simulator/workload.hpp"

#include <algorithm>
#include <numeric>

namespace farandole {
namespace {

using Instruction = Workload::Instruction;

// The span whose length gives an action's bytes; none for a signal.
const std::optional<Span>& moved_span(const Action& action) {
  return action.kind == Action::Kind::kSend ? action.source : action.target;
}

void add_counters(const Expr& expr, std::uint32_t& counters) {
  for (const Expr::Node& node : expr.nodes()) {
    if (node.op == Expr::Op::kLoop) counters |= 1U << node.value;
  }
}

// Counters that peers, guards or bytes depend on. Where a span begins does not affect the time.
std::uint32_t counters_of(const Round& round) {
  std::uint32_t counters = 0;
  for (const Action& action : round.actions) {
    for (const Guard& guard : action.when) {
      for (const Expr* expr : {&guard.value, &guard.low, &guard.high}) {
        add_counters(*expr, counters);
      }
    }
    if (action.kind != Action::Kind::kLocal) add_counters(action.peer, counters);
    if (const auto& span = moved_span(action)) add_counters(span->count, counters);
  }
  return counters;
}

std::int32_t stage_of(const Item& item) {
  if (const auto* round = std::get_if<Round>(&item)) return round->stage;
  const auto& body = std::get<std::shared_ptr<const Loop>>(item)->body;
  return body.empty() ? 0 : stage_of(body.front());
}

}  // namespace

Workload::Workload(const Schedule& schedule, double bytes, const Machine& machine)
    : schedule_(schedule),
      chunk_bytes_(schedule.chunk_count > 0 ? bytes / static_cast<double>(schedule.chunk_count)
                                            : 0.0),
      copy_seconds_(machine.copy_seconds_per_byte),
      reduce_seconds_(machine.reduce_seconds_per_byte) {
  lower(schedule.items, 0);
}

const Stage& Workload::stage(std::int32_t number) const {
  static const Stage kUnnamed;
  const auto at = static_cast<std::size_t>(number);
  return at < schedule_.stages.size() ? schedule_.stages[at] : kUnnamed;
}

void Workload::lower(const std::vector<Item>& items, std::int32_t depth) {
  for (const Item& item : items) {
    if (const auto seconds = local_seconds(item)) {
      add_local(*seconds, stage_of(item));
      continue;
    }
    if (const auto* round = std::get_if<Round>(&item)) {
      instructions_.push_back(
          {.stage = round->stage, .counters = counters_of(*round), .round = round});
      continue;
    }
    const Loop& loop = *std::get<std::shared_ptr<const Loop>>(item);
    if (loop.count < 1) continue;
    const auto begin = static_cast<std::uint32_t>(instructions_.size());
    instructions_.push_back(
        {.kind = Instruction::Kind::kLoopBegin, .depth = depth, .iterations = loop.count});
    lower(loop.body, depth + 1);
    instructions_[begin].jump = static_cast<std::uint32_t>(instructions_.size());
    instructions_.push_back({.kind = Instruction::Kind::kLoopEnd,
                             .depth = depth,
                             .jump = begin + 1,
                             .iterations = loop.count});
  }
}

void Workload::add_local(double seconds, std::int32_t stage) {
  if (seconds <= 0) return;
  const bool joins = !instructions_.empty() &&
                     instructions_.back().kind == Instruction::Kind::kLocal &&
                     instructions_.back().stage == stage;
  if (!joins) instructions_.push_back({.kind = Instruction::Kind::kLocal, .stage = stage});
  instructions_.back().seconds += seconds;
}

// Local work that is the same on every rank and in every iteration needs no rounds: a Bruck
// alltoall has hundreds of copies for each of its messages.
std::optional<double> Workload::local_seconds(const Item& item) const {
  if (const auto* round = std::get_if<Round>(&item)) return local_seconds(*round);
  const Loop& loop = *std::get<std::shared_ptr<const Loop>>(item);
  double sum = 0;
  for (const Item& inner : loop.body) {
    const auto seconds = local_seconds(inner);
    if (!seconds) return std::nullopt;
    sum += *seconds;
  }
  return sum * static_cast<double>(std::max<std::int64_t>(loop.count, 0));
}

std::optional<double> Workload::local_seconds(const Round& round) const {
  double longest = 0, chain = 0;
  const bool is_free = copy_seconds_ <= 0 && reduce_seconds_ <= 0;
  for (const Action& action : round.actions) {
    if (action.kind != Action::Kind::kLocal) return std::nullopt;
    if (is_free) continue;
    const auto& span = moved_span(action);
    if (!action.when.empty() || !span || !span->count.is_constant()) return std::nullopt;
    const auto count = static_cast<double>(span->count.nodes()[0].value);
    const double seconds = seconds_of(action, count * chunk_bytes_);
    chain = action.after_previous ? chain + seconds : seconds;
    longest = std::max(longest, chain);
  }
  return longest;
}

double Workload::seconds_of(const Action& action, double bytes) const {
  if (action.kind == Action::Kind::kSend) return 0;
  if (action.operand) return bytes * reduce_seconds_;
  return action.kind == Action::Kind::kLocal ? bytes * copy_seconds_ : 0;
}

Result<TimedRound> Workload::round(const Instruction& instruction, const Counters& counters) {
  const std::vector<Action>& actions = instruction.round->actions;
  if (written_.size() < actions.size()) written_.resize(actions.size());
  for (std::size_t i = 0; i < actions.size(); ++i) {
    const Action& action = actions[i];
    Written& into = written_[i];
    into.actions.clear();
    into.ranks.resize(static_cast<std::size_t>(rank_count()));
    std::iota(into.ranks.begin(), into.ranks.end(), 0);
    if (!keep_if(action.when, counters, into.ranks)) continue;
    if (auto result = write(action, counters, into); !result) return std::move(result).error();
  }
  return gathered(*instruction.round);
}

// Keeps only the ranks at which all guards hold; false if there are none.
bool Workload::keep_if(const std::vector<Guard>& when, const Counters& counters,
                       std::vector<std::int32_t>& ranks) {
  std::vector<std::int64_t> value, low;
  for (const Guard& guard : when) {
    const auto copy = [&](const Expr& expr, std::vector<std::int64_t>& into) {
      const auto column = columns_.evaluate(expr, ranks, counters);
      into.assign(column.begin(), column.end());
    };
    copy(guard.value, value);
    copy(guard.low, low);
    const auto high = columns_.evaluate(guard.high, ranks, counters);
    std::size_t kept = 0;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      if (low[i] <= value[i] && value[i] < high[i]) ranks[kept++] = ranks[i];
    }
    ranks.resize(kept);
  }
  return !ranks.empty();
}

Result<void> Workload::write(const Action& action, const Counters& counters, Written& into) {
  const auto broken = [&](const std::string& what, std::int64_t value) {
    return Error{ErrorKind::kInvalidArgument, "schedule \"" + schedule_.algorithm + "\": " + what +
                                                  " is " + std::to_string(value) +
                                                  " at a rank; verify() tells which."};
  };
  const TimedAction same{.lane = action.lane, .kind = action.kind};
  into.actions.assign(into.ranks.size(), same);
  if (action.kind != Action::Kind::kLocal) {
    const auto peers = columns_.evaluate(action.peer, into.ranks, counters);
    for (std::size_t i = 0; i < peers.size(); ++i) {
      if (peers[i] < 0 || peers[i] >= rank_count()) return broken("a peer", peers[i]);
      const auto at = static_cast<std::size_t>(peers[i]);
      into.actions[i].peer =
          schedule_.order.empty() ? static_cast<std::int32_t>(at) : schedule_.order[at];
    }
  }
  const auto& span = moved_span(action);
  if (!span) return {};
  const auto counts = columns_.evaluate(span->count, into.ranks, counters);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] < 0) return broken("a count of chunks", counts[i]);
    TimedAction& timed = into.actions[i];
    timed.bytes = static_cast<double>(counts[i]) * chunk_bytes_;
    timed.local_seconds = seconds_of(action, timed.bytes);
  }
  return {};
}

// Regroups actions by rank. If a rank takes no part in some actions of a chain, those of the chain
// in which it does still follow each other.
TimedRound Workload::gathered(const Round& round) const {
  const std::span written(written_.data(), round.actions.size());
  const auto p = static_cast<std::size_t>(rank_count());
  const auto rank_at = [&](std::int32_t position) {
    const auto at = static_cast<std::size_t>(position);
    return schedule_.order.empty() ? at : static_cast<std::size_t>(schedule_.order[at]);
  };
  TimedRound result;
  result.first.assign(p + 1, 0);
  for (const Written& action : written) {
    if (action.actions.empty()) continue;
    for (const std::int32_t position : action.ranks) ++result.first[rank_at(position) + 1];
  }
  std::partial_sum(result.first.begin(), result.first.end(), result.first.begin());
  result.actions.resize(result.first[p]);
  std::vector<std::uint32_t> next(result.first.begin(), result.first.end() - 1);
  enum class Chain : std::uint8_t { kNone, kReceives, kMixed };
  std::vector<Chain> chain(p, Chain::kNone);  // [rank]: what the current one holds so far
  for (std::size_t i = 0; i < written.size(); ++i) {
    const bool joined = round.actions[i].after_previous;
    if (!joined) std::fill(chain.begin(), chain.end(), Chain::kNone);
    if (written[i].actions.empty()) continue;
    for (std::size_t k = 0; k < written[i].ranks.size(); ++k) {
      const std::size_t rank = rank_at(written[i].ranks[k]);
      TimedAction& into = result.actions[next[rank]++];
      into = written[i].actions[k];
      const bool receives = into.kind == Action::Kind::kReceive;
      into.in_order = receives && chain[rank] == Chain::kReceives;
      into.after_previous = chain[rank] != Chain::kNone && !into.in_order;
      chain[rank] = receives && chain[rank] != Chain::kMixed ? Chain::kReceives : Chain::kMixed;
    }
  }
  return result;
}

}  // namespace farandole
