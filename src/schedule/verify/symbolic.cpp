// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/verify/symbolic.hpp"

#include <algorithm>
#include <unordered_set>

#include "schedule/verify/promise.hpp"

namespace farandole {
namespace {

constexpr std::size_t kNone = static_cast<std::size_t>(-1);
std::size_t index(std::int64_t value) {
  return static_cast<std::size_t>(value);
}

// One execution. Messages have no wildcards, so ready actions may be taken in any order with the
// same end: one execution stands for all interleavings, and a deadlock that it finds always occurs.
// So all ranks of an orbit may move at once, and the representative's moves say what the others do.
class Execution {
 public:
  Execution(const Schedule& header, const Symmetry& symmetry, const StepsOf& steps_of,
            Aliasing aliasing)
      : header_(header),
        symmetry_(symmetry),
        aliasing_(aliasing),
        state_(header, symmetry, aliasing),
        turns_(header, symmetry),
        lanes_(index(header.lane_count)),
        sending_(index(symmetry.orbit_count()) * lanes_, kNone),
        receiving_(sending_) {
    for (std::int64_t orbit = 0; orbit < symmetry.orbit_count(); ++orbit) {
      orbits_.push_back({steps_of(orbit), {}, 0, 0, 0, false, {}});
    }
  }

  Result<Proof> run() {
    for (std::size_t orbit = 0; orbit < orbits_.size(); ++orbit) enter_round(orbit);
    while (!ready_.empty()) {
      const Step step = ready_.back();
      ready_.pop_back();
      if (Result<void> done = post(step); !done) return done.error();
    }
    if (Result<void> done = everybody_finished(); !done) return done.error();
    for (std::size_t orbit = 0; orbit < orbits_.size(); ++orbit) {
      if (auto broken = state_.broken_promise(static_cast<std::int64_t>(orbit))) {
        return fail({orbit, 0}, *broken);
      }
    }
    const auto completes = [this](const Action* action) {
      return proof_.completing.contains(action);
    };
    if (std::ranges::any_of(partial_, completes)) proof_.completing.clear();
    return proof_;
  }

 private:
  struct OrbitState {
    Steps steps;
    ConcreteRound round;
    std::size_t round_index;
    std::size_t open;             // unfinished actions of this round
    std::int64_t rounds_entered;  // those with actions
    bool finished;
    std::vector<Knowledge> by_action;  // what an action and its chain learned; barriers only
  };
  struct Step {
    std::size_t orbit, action;
  };

  const ConcreteAction& action_of(Step step) const {
    return orbits_[step.orbit].round[step.action];
  }
  std::size_t lane_of(Step step) const { return step.orbit * lanes_ + index(action_of(step).lane); }
  bool is_barrier() const { return header_.collective == Collective::kBarrier; }

  void enter_round(std::size_t orbit) {
    OrbitState& at = orbits_[orbit];
    do {
      if (!at.steps.next(at.round)) {
        at.finished = true;
        return;
      }
      if (at.round.empty()) ++at.round_index;
    } while (at.round.empty());
    at.open = at.round.size();
    if (is_barrier()) at.by_action.resize(at.round.size());
    proof_.rounds = std::max(proof_.rounds, ++at.rounds_entered);
    for (std::size_t i = 0; i < at.round.size(); ++i) {
      if (!at.round[i].after_previous) ready_.push_back({orbit, i});
    }
  }

  Result<void> post(Step step) {
    const ConcreteAction& action = action_of(step);
    if (is_barrier()) {
      std::vector<Knowledge>& by_action = orbits_[step.orbit].by_action;
      by_action[step.action] =
          action.after_previous ? by_action[step.action - 1] : state_.knowledge(step.orbit);
    }
    if (action.kind == Action::Kind::kLocal) return run_local(step);
    const bool sends = action.kind == Action::Kind::kSend;
    (sends ? sending_ : receiving_)[lane_of(step)] = step.action;
    // The peer is its representative, turned. Turning back by as much takes this rank to the
    // representative's peer.
    const Symmetry::Point peer = symmetry_.place(action.peer);
    const std::size_t at_peer =
        (sends ? receiving_ : sending_)[index(peer.orbit) * lanes_ + index(action.lane)];
    if (at_peer == kNone) return {};
    const Step other{index(peer.orbit), at_peer};
    const Symmetry::Point back{static_cast<std::int64_t>(step.orbit),
                               symmetry_.inverse(peer.element)};
    if (symmetry_.place(action_of(other).peer) != back) return {};
    return sends ? transfer(step, other, back.element) : transfer(other, step, peer.element);
  }

  // Transfers from the rank to which `turn` takes the sender's representative to the receiver's
  // representative.
  Result<void> transfer(Step from, Step to, Symmetry::Element turn) {
    const ConcreteAction &send = action_of(from), &receive = action_of(to);
    if (send.source.has_value() != receive.target.has_value()) {
      return fail(to, sender(from, turn) + " sends " + described(send.source, turn) +
                          ", received as " + described(receive.target, 0));
    }
    if (send.source) {
      if (send.covers != receive.covers) return unsupported();
      if (!turns_.equally_long(*send.source, turn, *receive.target)) {
        return fail(to, sender(from, turn) + " sends " + described(send.source, turn) + ", but " +
                            text(*receive.target) + " is not equally long");
      }
      if (Result<void> read = read_span(from, *send.source, incoming_); !read) return read;
      turns_.turn(incoming_, *send.source, turn);
      if (Result<void> written = write(to, receive); !written) return written;
    }
    if (is_barrier()) {
      state_.learn(orbits_[to.orbit].by_action[to.action],
                   orbits_[from.orbit].by_action[from.action], turn);
    }
    proof_.transfers += symmetry_.order();
    sending_[lane_of(from)] = receiving_[lane_of(to)] = kNone;
    finish(from);
    finish(to);
    return {};
  }

  Result<void> run_local(Step step) {
    const ConcreteAction& action = action_of(step);
    if (!turns_.equally_long(*action.source, 0, *action.target)) {
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
    if (action.operand) {
      if (!turns_.equally_long(*action.operand, 0, *action.target)) {
        return fail(
            step, text(*action.operand) + " and " + text(*action.target) + " are not equally long");
      }
      if (Result<void> read = read_span(step, *action.operand, operand_); !read) return read;
      proof_.reductions += symmetry_.order();
      if (Result<void> reduced = reduce(step, action); !reduced) return reduced;
    }
    if (!state_.write(static_cast<std::int64_t>(step.orbit), *action.target, incoming_)) {
      return unsupported();
    }
    return {};
  }

  // incoming_ = operand_ (+) incoming_, run by run.
  Result<void> reduce(Step step, const ConcreteAction& action) {
    result_.clear();
    std::size_t a = 0, b = 0;
    for (std::int64_t at = 0; at < action.target->count;) {
      const Run &mine = operand_[a], &come = incoming_[b];
      const std::int64_t end = std::min(mine.at + mine.count, come.at + come.count);
      const std::int64_t chunk = mine.chunk + at - mine.at;
      if (chunk != come.chunk + at - come.at || state_.too_many(mine.value, come.value)) {
        return fail(step, "reduces " + state_.text(mine) + " in " + text(*action.operand) +
                              " with " + state_.text(come) +
                              ": not the same chunk, or a contribution counted twice");
      }
      const Value value = action.incoming_first ? state_.reduce(come.value, mine.value)
                                                : state_.reduce(mine.value, come.value);
      result_.push_back({at, end - at, value, chunk});
      if (const Action* origin = orbits_[step.orbit].steps.origin(step.action)) {
        (state_.of_all_ranks(value) ? proof_.completing : partial_).insert(origin);
      }
      if (mine.at + mine.count == end) ++a;
      if (come.at + come.count == end) ++b;
      at = end;
    }
    std::swap(incoming_, result_);
    return {};
  }

  // Runs counted from the start of the span. Where chunks differ in length, a span's shape must be
  // that of its values.
  Result<void> read_span(Step step, const ConcreteSpan& span, std::vector<Run>& runs) {
    if (!state_.read(static_cast<std::int64_t>(step.orbit), span, runs)) {
      const std::int64_t part = runs.empty() ? 0 : runs.back().at + runs.back().count;
      return fail(step, "reads " + text(span) + ", of which nothing has written part " +
                            std::to_string(part));
    }
    if (!chunks_differ_in_length(header_)) return {};
    for (const Run& run : runs) {
      if (run.chunk == span.shape + run.at) continue;
      return fail(step, "reads " + text(span) + ", of which part " + std::to_string(run.at) +
                            " holds " + state_.text(run));
    }
    return {};
  }

  void finish(Step step) {
    OrbitState& at = orbits_[step.orbit];
    const std::size_t next = step.action + 1;
    if (next < at.round.size() && at.round[next].after_previous) {
      ready_.push_back({step.orbit, next});
    }
    if (--at.open > 0) return;
    for (const Knowledge& learned : at.by_action) state_.learn(step.orbit, learned);
    ++at.round_index;
    enter_round(step.orbit);
  }

  Result<void> everybody_finished() const {
    constexpr int kNamedMax = 8;
    std::string waits;
    int blocked = 0;
    Step first{0, 0};
    for (std::size_t orbit = 0; orbit < orbits_.size(); ++orbit) {
      if (orbits_[orbit].finished) continue;
      if (blocked++ == 0) first.orbit = orbit;
      if (blocked <= kNamedMax) waits += waits_of(orbit);
    }
    if (blocked == 0) return {};
    if (blocked > kNamedMax) waits += " and " + std::to_string(blocked - kNamedMax) + " more";
    return fail(first, "deadlock:" + waits);
  }

  std::string waits_of(std::size_t orbit) const {
    std::string waits;
    for (std::size_t lane = 0; lane < lanes_; ++lane) {
      for (const auto* posted : {&sending_, &receiving_}) {
        const std::size_t action = (*posted)[orbit * lanes_ + lane];
        if (action == kNone) continue;
        const std::int64_t peer = orbits_[orbit].round[action].peer;
        const bool finished = orbits_[index(symmetry_.place(peer).orbit)].finished;
        waits += " rank " + std::to_string(rank(orbit)) + " waits in round " +
                 std::to_string(orbits_[orbit].round_index) +
                 (posted == &sending_ ? " for the receive of rank " : " for the send of rank ") +
                 std::to_string(peer) + (finished ? ", which has finished," : "") + " on lane " +
                 std::to_string(lane) + ";";
      }
    }
    return waits;
  }

  std::int64_t rank(std::size_t orbit) const {
    return symmetry_.representative(static_cast<std::int64_t>(orbit));
  }

  Error fail(Step step, const std::string& reason) const {
    return violation(header_, aliasing_, rank(step.orbit), orbits_[step.orbit].round_index, reason);
  }
  Error unsupported() const {
    return {ErrorKind::kUnsupported, "the proof by symmetry does not carry " + header_.algorithm +
                                         " over " + std::to_string(header_.rank_count) + " ranks"};
  }

  std::string sender(Step from, Symmetry::Element turn) const {
    return "rank " + std::to_string(symmetry_.rank({static_cast<std::int64_t>(from.orbit), turn}));
  }
  std::string described(const std::optional<ConcreteSpan>& span, Symmetry::Element turn) const {
    return span ? text(turns_.turned(*span, turn)) : "zero bytes";
  }

  const Schedule& header_;
  const Symmetry& symmetry_;
  const Aliasing aliasing_;
  Memories state_;
  const SpanTurns turns_;
  const std::size_t lanes_;
  std::vector<OrbitState> orbits_;
  std::vector<std::size_t> sending_, receiving_;  // [orbit, lane]: posted action, or kNone
  std::vector<Step> ready_;
  std::vector<Run> incoming_, operand_, result_;  // of the current action
  std::unordered_set<const Action*> partial_;     // whose result had fewer than all ranks' inputs
  Proof proof_;
};

}  // namespace

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

Result<Proof> execute_symbolically(const Schedule& header, const Symmetry& symmetry,
                                   const StepsOf& steps_of, Aliasing aliasing) {
  return Execution(header, symmetry, steps_of, aliasing).run();
}

}  // namespace farandole
