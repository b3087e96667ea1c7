// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bootstrap/membership_log.hpp"
#include "bootstrap/session.hpp"
#include "simulation/random.hpp"
#include "simulation/timetable.hpp"

namespace farandole::simulation {

/// What sessions do between processes.
class ControlPlane {
 public:
  struct Options {
    int rank_count = 2;
    Clock::duration delay_max{};      // of a message between neighbours
    Clock::duration detection_max{};  // from a death to a neighbour's notice
    Clock::duration timeout{};        // a silent rank is given up
    bool blind = false;               // deaths are never noticed
  };
  /// What a rank's session tells its engine; called within an event.
  struct Listener {
    std::function<void(const Departure&)> departed;
    std::function<void(Rank from, std::string_view message)> notice;
    std::function<void(Rank from, Rank to, std::string_view what)> stalled;
  };

  virtual ~ControlPlane() = default;

  virtual void flood(int rank, std::string_view message) = 0;
  virtual void leave(int rank, std::string_view state) = 0;
  virtual void kill(int rank) = 0;
  /// The process does not run until resume().
  virtual void stop(int rank) = 0;
  virtual void resume(int rank) = 0;
  /// A report that one rank's data do not reach the other.
  virtual void stalled(int reporter, int from, int to) = 0;
  /// Whether everybody who has left has closed all sockets.
  virtual bool ended() const = 0;
};

/// A quick one, over links with virtual delays: the events that all ranks come to know, with the
/// shipped tree and the shipped log of them. Who dies is missed by its neighbours; who is silent
/// for too long is given up, and told so when it is back.
class QuickControlPlane final : public ControlPlane {
 public:
  QuickControlPlane(Timetable& timetable, Random& random, Options options,
                    std::vector<Listener> listeners);

  void flood(int rank, std::string_view message) override;
  void leave(int rank, std::string_view state) override;
  void kill(int rank) override;
  void stop(int rank) override;
  void resume(int rank) override;
  void stalled(int reporter, int from, int to) override;
  bool ended() const override { return true; }

 private:
  struct Member {
    explicit Member(int rank_count) : log(rank_count) {}
    MembershipLog log;
    std::uint64_t notices = 0;
    bool dead = false, stopped = false, cut_off = false;
    std::set<int> links;
    std::deque<std::pair<int, std::string>> unread;  // while it is stopped
  };
  Member& member(int rank) { return members_[static_cast<std::size_t>(rank)]; }
  void send(int from, int to, const std::string& bytes);
  void pass_on(int rank, const std::string& frame);
  void read(int from, int to, const std::string& bytes);
  void understand(int from, int to, const Frame& frame);
  void learn(int rank, const Departure& departure);
  void cut_off(int rank, const Departure& by);
  void look_for_neighbours(int rank);
  void link(int a, int b);
  void miss(int watcher, int lost, const std::string& reason);

  Timetable& timetable_;
  Random& random_;
  const Options options_;
  const std::vector<Listener> listeners_;
  std::vector<Member> members_;
  std::vector<Clock::time_point> last_due_;  // by pair
};

}  // namespace farandole::simulation
