// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unordered_map>

#include "schedule/expand.hpp"
#include "schedule/verify/commute.hpp"

namespace farandole {

/// Walks one rank's rounds, from a schedule or from a list of explicit rounds.
///
/// Memory    copies neither; the walk over a schedule expands one round at a time.
class Steps {
 public:
  Steps(const Schedule& schedule, const Covers& covers, std::int64_t rank);
  explicit Steps(const std::vector<ConcreteRound>& rounds) : rounds_(&rounds) {}

  /// The next round, which may be one without actions; false after the last.
  bool next(ConcreteRound& round);
  /// The schedule's action from which that action of the round comes; null for explicit rounds.
  const Action* origin(std::size_t action) const {
    return rounds_ != nullptr ? nullptr : origins_[action];
  }

 private:
  struct Frame {
    const std::vector<Item>* items;
    std::size_t index;
    std::int64_t iterations_left;
  };
  // An action in which this rank may take part. `joined`: it and the actions left out just before
  // it are all after_previous.
  struct Candidate {
    const Action* action;
    bool joined;
  };
  void write(const Round& round, ConcreteRound& into);
  const std::vector<Candidate>& candidates(const Round& round);
  bool holds(const Guard& guard) const;
  ConcreteAction at_iteration(const Action& action) const;
  std::optional<ConcreteSpan> at(const std::optional<Span>& span) const;
  std::int64_t number(const Expr& expr) const { return expr.evaluate(rank_, loops_); }

  const std::vector<ConcreteRound>* rounds_ = nullptr;
  std::size_t next_ = 0;
  const Covers* covers_ = nullptr;
  std::int64_t rank_ = 0;
  std::vector<Frame> frames_;
  std::vector<const Action*> origins_;  // of the last round's actions
  std::vector<Candidate> once_;
  std::unordered_map<const Round*, std::vector<Candidate>> in_loops_;
  std::vector<std::int64_t> loops_;  // counters, outermost first
};

}  // namespace farandole
