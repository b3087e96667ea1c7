// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>

#include "bootstrap/probes.hpp"

namespace farandole {

/// Finds data sockets that carry nothing although both ends live, for instance because the network
/// passes small packets and drops large ones.
///
/// What counts is what the other end's system acknowledges. A process that does not read for hours
/// is not stalled: its system closes the window and answers. While bytes are not acknowledged, the
/// peer is probed. An outage that stops the probes as well is left to the heartbeats, and after it
/// a connection gets the whole time again.
///
/// Threads   add() and remove() from any; the rest from the control thread.
/// Blocking  nothing blocks.
class Stalls {
 public:
  /// `stalled(peer, bytes)`: this many bytes to that rank have not been acknowledged for
  /// Job::timeout. Called once per rank.
  Stalls(const Job& job, Probes& probes, std::function<void(int, std::uint64_t)> stalled);

  void add(int fd, int peer);
  void remove(int fd);

  void watch(PollSet& set);
  void check();

 private:
  struct Flow {
    int peer;
    Clock::time_point moved{};  // last progress, or last time without anything to send
    std::uint64_t acknowledged = 0, waiting = 0;
  };
  static void look(int fd, Flow& flow, Clock::time_point now);
  bool is_stalled(const Flow& flow, Clock::time_point now) const;

  const Job& job_;
  Probes& probes_;
  const std::function<void(int, std::uint64_t)> stalled_;
  const Clock::duration interval_;
  Clock::time_point due_;
  std::mutex mutex_;
  std::map<int, Flow> flows_;  // by descriptor; guarded by mutex_
  std::set<int> told_;         // ranks that were reported
};

}  // namespace farandole
