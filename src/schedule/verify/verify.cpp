// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "schedule/verify/commute.hpp"
#include "schedule/verify/symbolic.hpp"

namespace farandole {
namespace {

// Ranks are numbered densely, in 32 bits.
constexpr std::int64_t kRanksMax = std::int64_t{1} << 24;
// Each takes about 0.5 us, twice: apart and in place.
constexpr std::int64_t kStepsMax = std::int64_t{1} << 28;

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

// Steps of one rank, rounds included, at most cap + 1; nothing if loops are too deep or an
// expression uses the counter of a loop that is not around it.
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

std::string described(const Schedule& schedule) {
  return std::string(name(schedule.collective)) + " " + schedule.algorithm;
}

Result<std::int64_t> steps_per_rank(const Schedule& schedule) {
  if (const auto steps = count_steps(schedule.items, 0, kStepsMax)) return *steps;
  return Error{ErrorKind::kInternal, described(schedule) + ": loops nest deeper than " +
                                         std::to_string(Expr::kLoopDepthMax) +
                                         ", or an index uses a counter outside its loop"};
}

Result<Proof> prove(const Schedule& schedule, const Commutation& commutation, std::int64_t steps) {
  Schedule header = schedule;
  header.items.clear();
  header.rotations = commutation.rotations;
  std::int64_t orbits = header.rank_count;
  for (const Rotation& rotation : header.rotations) orbits /= rotation.size;
  const std::int64_t held = std::max<std::int64_t>(steps, header.lane_count);
  if (capped_product(orbits, held, kStepsMax) > kStepsMax) {
    return Error{ErrorKind::kUnsupported,
                 described(schedule) + " over " + std::to_string(header.rank_count) +
                     " ranks: no proof of that size is attempted; ranks that symmetry does not "
                     "relate, times steps, may be " +
                     std::to_string(kStepsMax)};
  }
  const Symmetry symmetry(header);
  return check(header, [&](std::int64_t orbit) {
    return Steps(schedule, commutation.covers, symmetry.representative(orbit));
  });
}

}  // namespace

Result<VerifiedSchedule> verify(Schedule schedule) {
  if (schedule.rank_count > kRanksMax) {
    return Error{ErrorKind::kUnsupported, described(schedule) + " over " +
                                              std::to_string(schedule.rank_count) +
                                              " ranks; at most " + std::to_string(kRanksMax)};
  }
  if (auto sound = check_header(schedule); !sound) return sound.error();
  const Result<std::int64_t> steps = steps_per_rank(schedule);
  if (!steps) return steps.error();
  const Commutation commutation = commuting_rotations(schedule);
  Result<Proof> proof = prove(schedule, commutation, *steps);
  if (!proof && proof.error().kind == ErrorKind::kUnsupported && !commutation.rotations.empty()) {
    proof = prove(schedule, {}, *steps);
  }
  if (!proof) return proof.error();
  return VerifiedSchedule(std::make_shared<const Schedule>(std::move(schedule)), *proof);
}

}  // namespace farandole
