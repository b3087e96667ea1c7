// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/links.hpp"
#include "bootstrap/listener.hpp"
#include "bootstrap/probes.hpp"
#include "simulation/control.hpp"
#include "simulation/sockets.hpp"

namespace farandole::simulation {

/// The shipped one: links, probes, listener, calls with their handshakes and events of every rank,
/// over virtual sockets. Only the loop that turns them is written here, as Session has it.
class ShippedControlPlane final : public ControlPlane {
 public:
  /// `started`: as far as the rank knows all are ready. `on_spin`: its loop turns and turns though
  /// nothing is ready and no time passes.
  ShippedControlPlane(Timetable& timetable, Random& random, Options options,
                      std::vector<Listener> listeners, std::function<void(int rank)> started,
                      std::function<void(int rank)> on_spin);

  void flood(int rank, std::string_view message) override;
  void leave(int rank, std::string_view state) override;
  void kill(int rank) override;
  void stop(int rank) override { member(rank).stopped = true; }
  void resume(int rank) override;
  void stalled(int reporter, int from, int to) override;

  bool ended() const override;

 private:
  struct Member {
    Member(Job made, const Roster& told, Descriptor socket, Session::Events heard);
    const Job job;
    const Roster& roster;
    farandole::Listener listener;
    const Session::Events events;
    Probes probes;
    Links links;
    bool stopped = false, dead = false, closed = false;
    std::optional<Deadline> end;  // once it leaves
    std::set<Clock::time_point> turns;
  };
  Member& member(int rank) { return *members_[static_cast<std::size_t>(rank)]; }
  Session::Events events_of(int rank, const std::function<void(int)>& started);
  void hear(int rank, Rank from, std::string_view message);
  void wake(int rank, Clock::time_point when);
  void run(int rank);
  bool turn(int rank);
  farandole::Listener::Admission admission_of(Member& self);

  Timetable& timetable_;
  const std::function<void(int)> on_spin_;
  const std::vector<Listener> listeners_;
  VirtualSockets sockets_;
  Roster roster_;
  std::vector<std::unique_ptr<Member>> members_;
};

}  // namespace farandole::simulation
