// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "base/clock.hpp"
#include "bootstrap/dial.hpp"
#include "bootstrap/roster.hpp"

namespace farandole {

/// Probes silent ranks again and again, to find out whether they are alive and can be reached.
///
/// Each probe uses a new connection: on an old one, what an outage has delayed waits for a
/// retransmission, which may take as long as the outage did. The answer is a handshake, so the
/// process itself has to give it.
///
/// Threads   the control thread only.
/// Blocking  nothing blocks.
class Probes {
 public:
  Probes(const Job& job, const Roster& roster);

  /// Probes that rank from now on; ends a little after the last call.
  void want(int rank);
  void watch(PollSet& set);
  void serve(const PollSet& set);

  /// When that rank last answered; none if it is not probed or has not answered.
  std::optional<Clock::time_point> answered(int rank) const;
  /// Since when that rank has answered, except for single lost probes; none while it does not.
  std::optional<Clock::time_point> reachable_since(int rank) const;

 private:
  struct Probe {
    Clock::time_point due, wanted_until;
    std::optional<Dial> dial = std::nullopt;
    std::optional<Clock::time_point> answered = std::nullopt, reachable = std::nullopt;
    int unanswered = 0;  // in a row
  };
  void settle(Probe& probe);

  const Job& job_;
  const Roster& roster_;
  const Clock::duration interval_;
  std::map<int, Probe> probes_;  // by rank
};

}  // namespace farandole
