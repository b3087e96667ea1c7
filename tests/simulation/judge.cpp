// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "simulation/judge.hpp"

#include <algorithm>

namespace farandole::simulation {
namespace {

using namespace std::chrono_literals;
// A quiet engine looks at its deadlines ten times a second.
constexpr auto kLook = 250ms;
// From a fault to its end on all ranks: detection, events over the tree and to new neighbours, and
// a suspicion's patience.
constexpr auto kEvents = 4s;
// The same by way of a rank that fails first, once it has called, and leaves.
constexpr auto kSecondHandEvents = 12s;

}  // namespace

bool Judge::disagreed(const OperationPlan& operation) const {
  return operation.otherwise.has_value() || operation.excused.has_value() ||
         (scenario_.freed_group == operation.group && !left_.empty());
}

bool Judge::has_lost(const GroupPlan& group) const {
  return std::ranges::any_of(lost_, [&](int rank) { return group.contains(rank); });
}

std::string Judge::outcome(const OperationPlan& operation, int rank, const Result<void>& outcome,
                           Clock::time_point submitted, Clock::time_point now) {
  const auto broken = broken_.find({rank, operation.group});
  if (broken != broken_.end() && submitted >= broken->second) {
    if (outcome || outcome.error().kind != ErrorKind::kTimedOut) {
      return "ran on a communicator that a time-out had broken";
    }
    return now > submitted + 1ms ? "waited on a communicator that a time-out had broken" : "";
  }
  if (outcome) {
    return operation.otherwise || operation.excused ? "ended well though ranks disagree" : "";
  }
  const Error& error = outcome.error();
  if (error.kind == ErrorKind::kTimedOut) {
    broken_.emplace(std::pair(rank, operation.group), now);
    if (now < submitted + scenario_.timeout) return "timed out before its deadline";
  }
  return failure(operation, error);
}

std::string Judge::failure(const OperationPlan& operation, const Error& error) const {
  const GroupPlan& group = scenario_.groups[operation.group];
  switch (error.kind) {
    case ErrorKind::kMismatch:
      return disagreed(operation) ? "" : "disagrees, though all ranks called alike";
    case ErrorKind::kTimedOut: {
      // A rank that has left does not report any more that its last messages do not arrive.
      const bool untold =
          scenario_.fault == Fault::kStall &&
          std::ranges::any_of(scenario_.victims, [&](int rank) { return left_.contains(rank); });
      const bool may =
          scenario_.fault == Fault::kLate || scenario_.fault == Fault::kBroken || untold;
      return may ? "" : "timed out for nothing";
    }
    case ErrorKind::kRankFailed:
      return blamed(group, error);
    default:
      return "failed with an error that nothing explains";
  }
}

std::string Judge::blamed(const GroupPlan& group, const Error& error) const {
  if (!fault_at_) return "blames a rank before anything went wrong";
  if (error.operation.empty()) return "does not say during which operation";
  if (!error.culprit) {
    const bool stalled = scenario_.fault == Fault::kStall && has_all_victims(group);
    return stalled ? "" : "blames nobody";
  }
  const int culprit = error.culprit->rank;
  if (!group.contains(culprit)) return "blames a rank of another group";
  const bool suspected = scenario_.fault == Fault::kBroken &&
                         scenario_.victims.end() != std::ranges::find(scenario_.victims, culprit);
  if (lost_.contains(culprit) || suspected) return "";
  // Whoever is cut off blames all others.
  if (scenario_.fault == Fault::kSilence) return "";
  if (!left_.contains(culprit)) return "blames a rank that lives";
  // Its departure comes after the death for which it left.
  const bool known = lost_.size() == 1 && has_lost(group);
  return known ? "blames a rank that left for another one's death" : "";
}

bool Judge::has_all_victims(const GroupPlan& group) const {
  return std::ranges::all_of(scenario_.victims, [&](int rank) { return group.contains(rank); });
}

Clock::time_point Judge::limit(const OperationPlan& operation, int rank,
                               Clock::time_point submitted) const {
  const Clock::time_point last = submitted + scenario_.timeout + kLook;
  const GroupPlan& group = scenario_.groups[operation.group];
  if (!last_fault_at_) return last;
  const Clock::time_point known = std::max(submitted, *last_fault_at_);
  if (has_lost(group)) return std::min(last, known + kEvents);
  if (!has_all_victims(group)) return last;
  if (stall_reported_) return std::min(last, known + kEvents);
  if (scenario_.fault != Fault::kBroken) return last;
  const bool is_victim = std::ranges::find(scenario_.victims, rank) != scenario_.victims.end();
  if (is_victim) return std::min(last, known + kEvents);
  return scenario_.quits ? std::min(last, known + kSecondHandEvents) : last;
}

}  // namespace farandole::simulation
