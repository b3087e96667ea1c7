// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/steps.hpp"

#include <algorithm>

namespace farandole {

Steps::Steps(const Schedule& schedule, const Covers& covers, std::int64_t rank)
    : covers_(&covers), rank_(rank) {
  frames_.push_back({&schedule.items, 0, 1});
}

bool Steps::next(ConcreteRound& round) {
  round.clear();
  if (rounds_ != nullptr) {
    if (next_ == rounds_->size()) return false;
    round = (*rounds_)[next_++];
    return true;
  }
  while (!frames_.empty()) {
    Frame& frame = frames_.back();
    if (frame.index == frame.items->size()) {
      frame.index = 0;
      if (--frame.iterations_left > 0) {
        ++loops_.back();
        continue;
      }
      frames_.pop_back();
      if (!loops_.empty()) loops_.pop_back();
      continue;
    }
    const Item& item = (*frame.items)[frame.index++];
    if (const auto* at = std::get_if<Round>(&item)) {
      write(*at, round);
      return true;
    }
    const Loop& loop = *std::get<std::shared_ptr<const Loop>>(item);
    if (loop.count < 1) continue;
    frames_.push_back({&loop.body, 0, loop.count});
    loops_.push_back(0);
  }
  return false;
}

void Steps::write(const Round& round, ConcreteRound& into) {
  origins_.clear();
  bool chain_open = false;  // an action of the current chain takes part
  for (const Candidate& candidate : candidates(round)) {
    chain_open = chain_open && candidate.joined;
    const std::vector<Guard>& when = candidate.action->when;
    const bool takes_part =
        std::all_of(when.begin(), when.end(), [this](const Guard& guard) { return holds(guard); });
    if (!takes_part) continue;
    into.push_back(at_iteration(*candidate.action));
    origins_.push_back(candidate.action);
    into.back().after_previous = chain_open;
    chain_open = true;
  }
}

// In a loop, guards without counters are evaluated once for all iterations: a rank takes part in
// only a few of the hundreds of actions in a tree's round.
const std::vector<Steps::Candidate>& Steps::candidates(const Round& round) {
  std::vector<Candidate>* kept = &once_;
  if (!loops_.empty()) {
    const auto [known, is_new] = in_loops_.try_emplace(&round);
    if (!is_new) return known->second;
    kept = &known->second;
  }
  kept->clear();
  bool joined = true;
  for (const Action& action : round.actions) {
    joined = joined && action.after_previous;
    const bool out = std::any_of(action.when.begin(), action.when.end(), [&](const Guard& guard) {
      const bool counts =
          !loops_.empty() && (guard.value.uses(Expr::Op::kLoop) ||
                              guard.low.uses(Expr::Op::kLoop) || guard.high.uses(Expr::Op::kLoop));
      return !counts && !holds(guard);
    });
    if (out) continue;
    kept->push_back({&action, joined});
    joined = true;
  }
  return *kept;
}

bool Steps::holds(const Guard& guard) const {
  const std::int64_t value = number(guard.value);
  return number(guard.low) <= value && value < number(guard.high);
}

ConcreteAction Steps::at_iteration(const Action& action) const {
  const auto covers = covers_->empty() ? covers_->end() : covers_->find(&action);
  return {
      action.kind,           action.lane,           number(action.peer),
      at(action.source),     at(action.target),     at(action.operand),
      action.incoming_first, action.after_previous, covers == covers_->end() ? 0 : covers->second};
}

std::optional<ConcreteSpan> Steps::at(const std::optional<Span>& span) const {
  if (!span) return std::nullopt;
  return ConcreteSpan{span->buffer, number(span->first), number(span->count), number(span->shape)};
}

}  // namespace farandole
