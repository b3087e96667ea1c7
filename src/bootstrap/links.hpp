// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/dial.hpp"
#include "bootstrap/listener.hpp"
#include "bootstrap/membership_log.hpp"
#include "bootstrap/probes.hpp"
#include "bootstrap/roster.hpp"

namespace farandole {

/// This rank's control sockets to its neighbours in the tree. They show which ranks are alive, and
/// carry all membership events.
///
/// A link that ends without a departure means that the neighbour has died. A rank that gives no
/// sign of life for Job::timeout, not even over a new connection, has failed; what a shorter outage
/// delays is waited for. This rank sends an event on every link before it acts on it. When a
/// neighbour has gone, the tree changes (tree.hpp), and both ends of each new edge call each other,
/// the child at once and the parent a little later. So a rank whose death nobody noticed, because
/// its neighbours died with it, is found by its new neighbours. A new link starts with all events
/// so far, so whatever one living rank knows, all living ranks learn.
///
/// Starting: a rank tells its parent when it is ready and both its children in the whole tree have
/// told it the same. When rank 0 has heard this, it floods that the job has started. A rank that
/// departs before that is not replaced in the tree: without it the job does not start.
///
/// Leaving: the departure is flooded. Then the rank stays until all others have departed too, or
/// until 250 ms have passed and every neighbour has heard of the departure, also neighbours that
/// take the place of other leaving ranks. Then it ends its links in order, reading each to its end.
/// Events also go back to the rank that sent them, so a neighbour that sends this rank its own
/// departure has heard of it. Hence no event is lost when many ranks leave at once: a rank that
/// knows an event stays until its neighbours know it. Session ends the wait for a neighbour that
/// does not answer.
///
/// Threads   the control thread only.
/// Blocking  nothing blocks.
class Links {
 public:
  Links(const Job& job, const Roster& roster, Probes& probes, const Session::Events& events);

  void watch(PollSet& set);
  void serve(const PollSet& set);

  /// The listener's Admission for Purpose::kControl.
  Verdict admit(int rank) const;
  void enter(int rank, Descriptor socket);

  void learn(const Departure& departure);
  void flood(std::string_view message);
  /// Says that this rank has what it needs to begin.
  void ready();
  void leave(std::string_view state, std::string_view reason = "shut down");
  bool closed() const;
  /// Drops the links and calls that are still open.
  void close();
  bool leaving() const { return phase_ != Phase::kMember; }
  /// Whether that rank has left in order.
  bool left(int rank) const {
    return rank >= 0 && rank < job_.size && log_.departure(rank) && !log_.failed(rank);
  }

 private:
  enum class Phase : std::uint8_t { kMember, kLeaving, kClosing };
  struct Link {
    Channel channel;
    FrameReader frames{kControlBytesMax};
    Clock::time_point heard_at{}, beat_at{};
    Clock::time_point read_at{};  // from the link itself, without probes
    bool knows = false;           // has heard of our departure
    bool told = false;            // that this rank and all ranks below it are ready
    bool finished = false;        // we send no more
    bool dead = false;            // to be removed by sweep()
  };
  /// An edge of the tree that is to become a link.
  struct Call {
    Clock::time_point due, started_at;
    std::optional<Clock::time_point> refused_at = std::nullopt;  // since when, without a break
    std::optional<Dial> dial = std::nullopt;
  };

  void listen_to(int rank, Link& link);
  void understand(int rank, Link& link, const Frame& frame);
  void end_of(int rank, Link& link);
  void keep_time();
  void keep_time(int rank, Link& link, Clock::time_point now);
  void sweep();
  void pass_on(const std::string& frame);
  void report_ready();
  void start();
  void expel(int rank);
  void cut_off(int by, const std::string& reason);
  bool all_know() const;

  void call_neighbours(Clock::duration delay);
  void hurry_calls();
  void attempt(int rank, Call& call);
  void settle(int rank, Call& call);
  void refused(int rank, Call& call);
  bool wanted(int rank) const;

  const Job& job_;
  const Roster& roster_;
  Probes& probes_;
  const Session::Events& events_;
  const int self_;
  std::vector<Address> addresses_;  // index = rank
  MembershipLog log_;
  std::vector<int> neighbours_;  // by the tree and the log
  std::map<int, Link> links_;    // by rank
  std::map<int, Call> calls_;
  std::uint64_t notices_sent_ = 0;
  bool ready_ = false;
  std::set<int> ready_children_;
  Phase phase_ = Phase::kMember;
  Clock::time_point stay_until_{};
  Clock::time_point turned_at_ = Clock::now();
};

}  // namespace farandole
