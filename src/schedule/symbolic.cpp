// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/symbolic.hpp"

#include <algorithm>

namespace farandole {
namespace {

using Value = ValueTable::Id;

constexpr std::size_t kNone = static_cast<std::size_t>(-1);
std::size_t index(std::int64_t value) {
  return static_cast<std::size_t>(value);
}

// One run. Messages have no wildcards, so every order in which ready actions are taken ends the
// same: one run stands for all interleavings, and a deadlock found is a deadlock always.
class Execution {
 public:
  Execution(const Expanded& expanded, Aliasing aliasing)
      : header_(expanded.header),
        steps_(expanded.ranks),
        aliasing_(aliasing),
        map_(header_, aliasing),
        values_(header_.rank_count),
        words_((steps_.size() + 63) / 64),
        cells_(steps_.size() * map_.per_rank(), ValueTable::kUndefined),
        states_(steps_.size()),
        sending_(steps_.size() * index(header_.lane_count), kNone),
        receiving_(sending_) {}

  Result<Proof> run() {
    place_inputs();
    for (std::size_t rank = 0; rank < steps_.size(); ++rank) {
      states_[rank].known.assign(words_, 0);
      states_[rank].known[rank / 64] = std::uint64_t{1} << (rank % 64);
      enter_round(rank);
    }
    while (!ready_.empty()) {
      const Step step = ready_.back();
      ready_.pop_back();
      if (Result<void> done = post(step); !done) return done.error();
    }
    if (Result<void> done = everybody_finished(); !done) return done.error();
    if (Result<void> done = promise_kept(); !done) return done.error();
    return proof_;
  }

 private:
  // Bits of ranks whose entry is known: a message carries what its sender knew when it posted.
  using Knowledge = std::vector<std::uint64_t>;
  struct RankState {
    std::size_t round = 0;
    std::size_t open = 0;              // unfinished actions of this round
    std::int64_t rounds_entered = 0;   // those with actions
    Knowledge known;                   // on entry to this round
    std::vector<Knowledge> by_action;  // as `known`, with what the action and its chain learned
  };
  struct Step {
    std::size_t rank, action;
  };

  void place_inputs() {
    const std::int64_t chunks = chunks_of(header_, Buffer::kIn);
    for (std::int64_t rank = 0; rank < header_.rank_count; ++rank) {
      const bool only_root = header_.collective == Collective::kBroadcast ||
                             header_.collective == Collective::kScatter;
      if (only_root && rank != header_.root) continue;
      for (std::int64_t c = 0; c < chunks; ++c) {
        cell(rank, Buffer::kIn, c) = values_.leaf(rank, chunk_of_input(header_, rank, c));
      }
    }
  }

  Value& cell(std::int64_t rank, Buffer buffer, std::int64_t at) {
    return cells_[index(rank) * map_.per_rank() + map_.of(rank, buffer, at)];
  }

  const ConcreteRound& round_of(std::size_t rank) const {
    return steps_[rank][states_[rank].round];
  }
  const ConcreteAction& action_of(Step step) const { return round_of(step.rank)[step.action]; }
  std::size_t lane_of(Step step) const {
    return step.rank * index(header_.lane_count) + index(action_of(step).lane);
  }

  void enter_round(std::size_t rank) {
    RankState& state = states_[rank];
    while (state.round < steps_[rank].size() && round_of(rank).empty()) ++state.round;
    if (state.round == steps_[rank].size()) return;
    const ConcreteRound& round = round_of(rank);
    state.open = round.size();
    state.by_action.resize(round.size());
    proof_.rounds = std::max(proof_.rounds, ++state.rounds_entered);
    for (std::size_t i = 0; i < round.size(); ++i) {
      if (!round[i].after_previous) ready_.push_back({rank, i});
    }
  }

  Result<void> post(Step step) {
    const ConcreteAction& action = action_of(step);
    RankState& state = states_[step.rank];
    state.by_action[step.action] =
        action.after_previous ? state.by_action[step.action - 1] : state.known;
    if (action.kind == Action::Kind::kLocal) return run_local(step);
    const bool sends = action.kind == Action::Kind::kSend;
    (sends ? sending_ : receiving_)[lane_of(step)] = step.action;
    const std::size_t peer = index(action.peer);
    const std::size_t at_peer =
        (sends ? receiving_ : sending_)[peer * index(header_.lane_count) + index(action.lane)];
    if (at_peer == kNone) return {};
    const Step other{peer, at_peer};
    if (index(action_of(other).peer) != step.rank) return {};
    return sends ? transfer(step, other) : transfer(other, step);
  }

  Result<void> transfer(Step from, Step to) {
    const ConcreteAction &send = action_of(from), &receive = action_of(to);
    if (send.source.has_value() != receive.target.has_value()) {
      return fail(to, "rank " + std::to_string(from.rank) + " sends " + described(send.source) +
                          ", received as " + described(receive.target));
    }
    if (send.source) {
      if (!equally_long(*send.source, *receive.target)) {
        return fail(to, "rank " + std::to_string(from.rank) + " sends " + text(*send.source) +
                            ", but " + text(*receive.target) + " is not equally long");
      }
      if (Result<void> read = read_span(from, *send.source, incoming_); !read) return read;
      if (Result<void> written = write(to, receive); !written) return written;
    }
    const Knowledge& sent = states_[from.rank].by_action[from.action];
    Knowledge& learned = states_[to.rank].by_action[to.action];
    for (std::size_t w = 0; w < words_; ++w) learned[w] |= sent[w];
    ++proof_.transfers;
    sending_[lane_of(from)] = receiving_[lane_of(to)] = kNone;
    finish(from);
    finish(to);
    return {};
  }

  Result<void> run_local(Step step) {
    const ConcreteAction& action = action_of(step);
    if (!equally_long(*action.source, *action.target)) {
      return fail(step,
                  text(*action.source) + " and " + text(*action.target) + " are not equally long");
    }
    if (Result<void> read = read_span(step, *action.source, incoming_); !read) return read;
    if (Result<void> written = write(step, action); !written) return written;
    finish(step);
    return {};
  }

  // target = incoming_, or operand (+) incoming_.
  Result<void> write(Step step, const ConcreteAction& action) {
    const auto rank = static_cast<std::int64_t>(step.rank);
    if (action.operand) {
      if (!equally_long(*action.operand, *action.target)) {
        return fail(
            step, text(*action.operand) + " and " + text(*action.target) + " are not equally long");
      }
      if (Result<void> read = read_span(step, *action.operand, operand_); !read) return read;
      ++proof_.reductions;
    }
    for (std::size_t i = 0; i < incoming_.size(); ++i) {
      Value result = incoming_[i];
      if (action.operand) {
        const Value a = action.incoming_first ? incoming_[i] : operand_[i];
        const Value b = action.incoming_first ? operand_[i] : incoming_[i];
        if (values_.chunk(a) != values_.chunk(b) || values_.share_contributors(a, b)) {
          return fail(step, "reduces " + values_.text(operand_[i]) + " in " +
                                text(*action.operand) + " with " + values_.text(incoming_[i]) +
                                ": not the same chunk, or a contribution counted twice");
        }
        result = values_.reduce(a, b);
      }
      const std::int64_t at = action.target->first + static_cast<std::int64_t>(i);
      cell(rank, action.target->buffer, at) = result;
    }
    return {};
  }

  // Chunks that share n elements differ in length, so a span's shape must be that of its values.
  Result<void> read_span(Step step, const ConcreteSpan& span, std::vector<Value>& values) {
    values.clear();
    for (std::int64_t i = 0; i < span.count; ++i) {
      const Value value = cell(static_cast<std::int64_t>(step.rank), span.buffer, span.first + i);
      if (value == ValueTable::kUndefined) {
        return fail(step, "reads " + text(span) + ", of which nothing has written part " +
                              std::to_string(i));
      }
      if (chunks_differ_in_length() && values_.chunk(value) != span.shape + i) {
        return fail(step, "reads " + text(span) + ", of which part " + std::to_string(i) +
                              " holds " + values_.text(value));
      }
      values.push_back(value);
    }
    return {};
  }

  bool chunks_differ_in_length() const {
    return header_.collective == Collective::kAllreduce ||
           header_.collective == Collective::kReduce ||
           header_.collective == Collective::kBroadcast;
  }

  bool equally_long(const ConcreteSpan& a, const ConcreteSpan& b) const {
    return a.count == b.count && (a.shape == b.shape || !chunks_differ_in_length());
  }

  void finish(Step step) {
    RankState& state = states_[step.rank];
    const ConcreteRound& round = round_of(step.rank);
    const std::size_t next = step.action + 1;
    if (next < round.size() && round[next].after_previous) ready_.push_back({step.rank, next});
    if (--state.open > 0) return;
    for (const Knowledge& learned : state.by_action) {
      for (std::size_t w = 0; w < words_; ++w) state.known[w] |= learned[w];
    }
    ++state.round;
    enter_round(step.rank);
  }

  Result<void> everybody_finished() const {
    constexpr int kNamedMax = 8;
    std::string waits;
    int blocked = 0;
    Step first{0, 0};
    for (std::size_t rank = 0; rank < steps_.size(); ++rank) {
      if (finished(rank)) continue;
      if (blocked++ == 0) first.rank = rank;
      if (blocked <= kNamedMax) waits += waits_of(rank);
    }
    if (blocked == 0) return {};
    if (blocked > kNamedMax) waits += " and " + std::to_string(blocked - kNamedMax) + " more";
    return fail(first, "deadlock:" + waits);
  }

  bool finished(std::size_t rank) const { return states_[rank].round == steps_[rank].size(); }

  std::string waits_of(std::size_t rank) const {
    std::string waits;
    const std::size_t lanes = index(header_.lane_count);
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      for (const auto* posted : {&sending_, &receiving_}) {
        const std::size_t action = (*posted)[rank * lanes + lane];
        if (action == kNone) continue;
        const auto peer = index(round_of(rank)[action].peer);
        waits += " rank " + std::to_string(rank) + " waits in round " +
                 std::to_string(states_[rank].round) +
                 (posted == &sending_ ? " for the receive of rank " : " for the send of rank ") +
                 std::to_string(peer) + (finished(peer) ? ", which has finished," : "") +
                 " on lane " + std::to_string(lane) + ";";
      }
    }
    return waits;
  }

  Result<void> promise_kept() {
    for (std::int64_t rank = 0; rank < header_.rank_count; ++rank) {
      const Step end{index(rank), 0};
      const bool only_root =
          header_.collective == Collective::kReduce || header_.collective == Collective::kGather;
      if (only_root && rank != header_.root) continue;
      for (std::int64_t c = 0; c < chunks_of(header_, Buffer::kOut); ++c) {
        const Value value = cell(rank, Buffer::kOut, c);
        if (is_promised(value, rank, c)) continue;
        return fail(end, "ends with " + values_.text(value) + " in out[" + std::to_string(c) +
                             "], or with another order of operands than rank 0");
      }
      if (header_.collective != Collective::kBarrier) continue;
      for (std::size_t other = 0; other < steps_.size(); ++other) {
        if (states_[index(rank)].known[other / 64] >> (other % 64) & 1) continue;
        return fail(end, "leaves the barrier without knowing that rank " + std::to_string(other) +
                             " entered");
      }
    }
    return {};
  }

  bool is_promised(Value value, std::int64_t rank, std::int64_t c) {
    switch (header_.collective) {
      case Collective::kAllreduce:
        return value == cell(0, Buffer::kOut, c) && values_.chunk(value) == c && complete(value);
      case Collective::kReduce:
        return values_.chunk(value) == c && complete(value);
      case Collective::kReducescatter:
        return values_.chunk(value) == rank && complete(value);
      case Collective::kAllgather:
      case Collective::kGather:
      case Collective::kBroadcast:
        return values_.chunk(value) == c;  // one contributor each
      case Collective::kScatter:
        return values_.chunk(value) == rank;
      case Collective::kAlltoall:
        return values_.chunk(value) == c * header_.rank_count + rank;
      case Collective::kBarrier:
        break;
    }
    return true;
  }

  bool complete(Value value) const {
    return values_.contributor_count(value) == header_.rank_count;
  }

  Error fail(Step step, const std::string& reason) const {
    return violation(header_, aliasing_, static_cast<std::int64_t>(step.rank),
                     states_[step.rank].round, reason);
  }

  static std::string described(const std::optional<ConcreteSpan>& span) {
    return span ? text(*span) : "zero bytes";
  }

  const Schedule& header_;
  const std::vector<std::vector<ConcreteRound>>& steps_;
  const Aliasing aliasing_;
  const CellMap map_;
  ValueTable values_;
  const std::size_t words_;
  std::vector<Value> cells_;  // [rank, cell]
  std::vector<RankState> states_;
  std::vector<std::size_t> sending_, receiving_;  // [rank, lane]: posted action, or kNone
  std::vector<Step> ready_;
  std::vector<Value> incoming_, operand_;  // of the action at hand
  Proof proof_;
};

}  // namespace

std::int64_t chunk_of_input(const Schedule& header, std::int64_t rank, std::int64_t index) {
  switch (header.collective) {
    case Collective::kAllgather:
    case Collective::kGather:
      return rank;
    case Collective::kAlltoall:
      return rank * header.rank_count + index;
    default:
      return index;
  }
}

Error violation(const Schedule& header, Aliasing aliasing, std::int64_t rank, std::size_t round,
                const std::string& reason) {
  return {ErrorKind::kInternal,
          std::string(name(header.collective)) + " " + header.algorithm + " over " +
              std::to_string(header.rank_count) + " ranks" +
              (aliasing == Aliasing::kInPlace ? ", in place: rank " : ": rank ") +
              std::to_string(rank) + ", round " + std::to_string(round) + ": " + reason};
}

std::string text(const ConcreteSpan& span) {
  constexpr std::string_view kNames[] = {"in", "out", "scratch"};
  std::string result(kNames[static_cast<std::size_t>(span.buffer)]);
  result.append("[").append(std::to_string(span.first));
  if (span.count != 1) result += ", " + std::to_string(span.count);
  if (span.shape != span.first) result += " as " + std::to_string(span.shape);
  return result + "]";
}

Result<Proof> execute_symbolically(const Expanded& expanded, Aliasing aliasing) {
  return Execution(expanded, aliasing).run();
}

}  // namespace farandole
