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

void Steps::write(const Round& round, ConcreteRound& into) const {
  bool chain_open = false;  // an action of the current chain takes part
  for (const Action& action : round.actions) {
    chain_open = chain_open && action.after_previous;
    if (!takes_part(action)) continue;
    into.push_back(at_iteration(action));
    into.back().after_previous = chain_open;
    chain_open = true;
  }
}

bool Steps::takes_part(const Action& action) const {
  return std::all_of(action.when.begin(), action.when.end(), [this](const Guard& guard) {
    const std::int64_t value = number(guard.value);
    return number(guard.low) <= value && value < number(guard.high);
  });
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
