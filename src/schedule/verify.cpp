// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "schedule/expand.hpp"

namespace farandole {
namespace {

// The proof writes out every step and every chunk of every rank, with a bit per contributor;
// these bounds keep it within about 2 GB. The ring over 1024 ranks is inside: 6.3 million steps
// with its rounds, and 2.1 million chunks of 16 words.
constexpr std::int64_t kStepsMax = std::int64_t{1} << 23;
constexpr std::int64_t kChunkWordsMax = std::int64_t{1} << 26;

std::int64_t capped_product(std::int64_t a, std::int64_t b, std::int64_t cap) {
  if (a <= 0 || b <= 0) return 0;
  return a > cap / b ? cap + 1 : a * b;
}

bool counters_exist(const Expr& expr, int depth) {
  return std::all_of(expr.nodes().begin(), expr.nodes().end(), [depth](const Expr::Node& node) {
    return node.op != Expr::Op::kLoop || node.value < depth;
  });
}

bool counters_exist(const Action& action, int depth) {
  bool exist = counters_exist(action.peer, depth);
  for (const Guard& guard : action.when) {
    exist = exist && counters_exist(guard.value, depth) && counters_exist(guard.low, depth) &&
            counters_exist(guard.high, depth);
  }
  for (const auto* span : {&action.source, &action.target, &action.operand}) {
    if (!*span) continue;
    exist = exist && counters_exist((*span)->first, depth) &&
            counters_exist((*span)->count, depth) && counters_exist((*span)->shape, depth);
  }
  return exist;
}

// Steps of one rank, rounds included, at most cap + 1; nothing when loops are too deep or an
// expression uses a counter of no loop around it.
std::optional<std::int64_t> count_steps(const std::vector<Item>& items, int depth,
                                        std::int64_t cap) {
  if (depth > Expr::kLoopDepthMax) return std::nullopt;
  std::int64_t steps = 0;
  for (const Item& item : items) {
    std::int64_t added = 0;
    if (const auto* round = std::get_if<Round>(&item)) {
      for (const Action& action : round->actions) {
        if (!counters_exist(action, depth)) return std::nullopt;
      }
      added = 1 + static_cast<std::int64_t>(round->actions.size());
    } else {
      const Loop& loop = *std::get<std::shared_ptr<const Loop>>(item);
      const auto once = count_steps(loop.body, depth + 1, cap);
      if (!once) return std::nullopt;
      added = capped_product(loop.count, std::max<std::int64_t>(*once, 1), cap);
    }
    steps = std::min(steps + added, cap + 1);
  }
  return steps;
}

Result<void> fits_a_proof(const Schedule& schedule) {
  const std::string what = std::string(name(schedule.collective)) + " " + schedule.algorithm;
  const auto steps = count_steps(schedule.items, 0, kStepsMax);
  if (!steps) {
    return Error{ErrorKind::kInternal, what + ": loops nest deeper than " +
                                           std::to_string(Expr::kLoopDepthMax) +
                                           ", or an index uses a counter outside its loop"};
  }
  const auto bounded = [](std::int64_t value) {
    return std::clamp<std::int64_t>(value, 0, kChunkWordsMax);
  };
  const std::int64_t ranks = schedule.rank_count;
  const std::int64_t chunks = 2 * bounded(schedule.chunk_count) + bounded(schedule.scratch_slots) +
                              bounded(schedule.lane_count) + 1;
  const std::int64_t words = bounded(ranks) / 64 + 1;
  if (ranks < 1 || capped_product(ranks, *steps, kStepsMax) > kStepsMax ||
      capped_product(capped_product(ranks, chunks, kChunkWordsMax), words, kChunkWordsMax) >
          kChunkWordsMax) {
    return Error{ErrorKind::kUnsupported,
                 what + " over " + std::to_string(ranks) +
                     " ranks: no proof of that size is attempted; ranks times steps may be " +
                     std::to_string(kStepsMax) + ", and ranks times chunks and lanes, in bits of " +
                     "contributors, " + std::to_string(kChunkWordsMax) + " words"};
  }
  return {};
}

}  // namespace

Result<VerifiedSchedule> verify(Schedule schedule) {
  if (Result<void> fits = fits_a_proof(schedule); !fits) return fits.error();
  Result<Proof> proof = check(expand(schedule));
  if (!proof) return proof.error();
  return VerifiedSchedule(std::make_shared<const Schedule>(std::move(schedule)), *proof);
}

}  // namespace farandole
