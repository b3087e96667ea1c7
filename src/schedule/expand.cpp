// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/expand.hpp"

#include <algorithm>

namespace farandole {
namespace {

class Expansion {
 public:
  Expansion(std::int64_t rank, std::vector<ConcreteRound>& rounds) : rank_(rank), rounds_(rounds) {}

  void add(const std::vector<Item>& items) {
    for (const Item& item : items) {
      if (const auto* round = std::get_if<Round>(&item)) {
        add(*round);
        continue;
      }
      const Loop& loop = *std::get<std::shared_ptr<const Loop>>(item);
      for (std::int64_t iteration = 0; iteration < loop.count; ++iteration) {
        loops_.push_back(iteration);
        add(loop.body);
        loops_.pop_back();
      }
    }
  }

 private:
  void add(const Round& round) {
    ConcreteRound& steps = rounds_.emplace_back();
    bool chain_open = false;  // an action of the current chain takes part
    for (const Action& action : round.actions) {
      chain_open = chain_open && action.after_previous;
      if (!takes_part(action)) continue;
      steps.push_back(at_iteration(action));
      steps.back().after_previous = chain_open;
      chain_open = true;
    }
  }

  bool takes_part(const Action& action) const {
    return std::all_of(action.when.begin(), action.when.end(), [this](const Guard& guard) {
      const std::int64_t value = number(guard.value);
      return number(guard.low) <= value && value < number(guard.high);
    });
  }

  ConcreteAction at_iteration(const Action& action) const {
    return {action.kind,       action.lane,        number(action.peer),   at(action.source),
            at(action.target), at(action.operand), action.incoming_first, action.after_previous};
  }

  std::optional<ConcreteSpan> at(const std::optional<Span>& span) const {
    if (!span) return std::nullopt;
    return ConcreteSpan{span->buffer, number(span->first), number(span->count),
                        number(span->shape)};
  }

  std::int64_t number(const Expr& expr) const { return expr.evaluate(rank_, loops_); }

  std::int64_t rank_;
  std::vector<ConcreteRound>& rounds_;
  std::vector<std::int64_t> loops_;  // counters, the outermost first
};

}  // namespace

Expanded expand(const Schedule& schedule) {
  Expanded expanded{schedule, {}};
  expanded.header.items.clear();
  expanded.ranks.resize(static_cast<std::size_t>(schedule.rank_count));
  for (std::int64_t rank = 0; rank < schedule.rank_count; ++rank) {
    Expansion(rank, expanded.ranks[static_cast<std::size_t>(rank)]).add(schedule.items);
  }
  return expanded;
}

}  // namespace farandole
