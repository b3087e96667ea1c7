// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <set>
#include <string>

#include "farandole/result.hpp"
#include "simulation/scenario.hpp"
#include "simulation/timetable.hpp"

namespace farandole::simulation {

/// What may come of an operation, by what has gone wrong so far.
class Judge {
 public:
  explicit Judge(const Scenario& scenario) : scenario_(scenario) {}

  /// A process died or is given up.
  void lost(int rank, Clock::time_point when) {
    lost_.insert(rank);
    note_fault(when);
  }
  /// Something else went wrong.
  void note_fault(Clock::time_point when) {
    if (!fault_at_) fault_at_ = when;
    last_fault_at_ = when;
  }
  void left(int rank) { left_.insert(rank); }
  /// All ranks will hear that a link carries nothing.
  void stall_reported(Clock::time_point when) {
    stall_reported_ = true;
    note_fault(when);
  }

  /// What is wrong with this outcome on this rank; empty if nothing is.
  std::string outcome(const OperationPlan& operation, int rank, const Result<void>& outcome,
                      Clock::time_point submitted, Clock::time_point now);
  /// By when a rank's operation has to have ended.
  Clock::time_point limit(const OperationPlan& operation, int rank,
                          Clock::time_point submitted) const;

 private:
  std::string failure(const OperationPlan& operation, const Error& error) const;
  std::string blamed(const GroupPlan& group, const Error& error) const;
  bool disagreed(const OperationPlan& operation) const;
  bool has_lost(const GroupPlan& group) const;
  bool has_all_victims(const GroupPlan& group) const;

  const Scenario& scenario_;
  std::set<int> lost_, left_;
  bool stall_reported_ = false;
  std::optional<Clock::time_point> fault_at_, last_fault_at_;
  std::map<std::pair<int, std::size_t>, Clock::time_point> broken_;  // rank, group: since when
};

}  // namespace farandole::simulation
