// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.hpp"
#include "bootstrap/member.hpp"
#include "farandole/job.hpp"
#include "farandole/result.hpp"

namespace farandole {

/// A rank that is no longer there. A clean departure ran shutdown(); `state` is what it passed.
struct Departure {
  Rank rank;
  bool clean = false;
  std::string reason;  // "died", "went silent for 30 s", "shut down", "gave up ...: why"
  std::string state;
};

/// This process's place in the job: the control plane.
///
/// Every rank proves that it knows the job's secret (HMAC-SHA-256 challenge and response, both
/// ways) before anything it says is read. Rank 0 collects one Member per rank and hands out the
/// table; then each rank keeps control sockets to its neighbours in a binary tree over the
/// ranks. A neighbour whose socket closes without a departure has died, one that is silent for
/// Job::timeout is taken for dead. Both events are flooded over the tree at once.
///
/// Threads   start() on the caller's thread; afterwards one control thread, asleep in poll(),
///           owns the sockets. open(), accept(), flood(), leave() from any thread.
/// Security  one listening port per process; connections that fail the handshake, stall, or send
///           more than it allows are dropped and counted, and change nothing.
/// Starting  until every rank has called begin(), the first departure of any ends the start of all:
///           open(), accept() and begin() fail and name it.
/// Blocking  start(), open(), accept(), begin() block up to their deadline; leave() for about
///           250 ms, and up to three seconds if a neighbour does not answer.
class Session {
 public:
  struct Events {
    /// On the control thread, once per rank, in the order of the events. Must not block.
    std::function<void(const Departure&)> departed;
    /// On the control thread: a message that another rank flooded.
    std::function<void(Rank from, std::string_view message)> notice;
    /// On the control thread: the launcher is gone. The process is killed two seconds later,
    /// so that nothing outlives its launcher; until then it may say so. May be empty.
    std::function<void()> launcher_died = {};
    /// On the control thread: every rank is ready to begin. Departures told before it end the start
    /// of all, later ones do not.
    std::function<void()> started = {};
    /// On the control thread, on every rank: both live, but `what` from one to the other does not
    /// arrive. Once per report; both ends may report it.
    std::function<void(Rank from, Rank to, std::string_view what)> stalled = {};
  };

  /// Rendezvous with all ranks of the job. `record` is published in this rank's Member.
  /// `job` is complete (complete.hpp).
  /// Errors    kTimedOut naming the ranks that did not come; kInvalidArgument when two processes
  ///           claim one rank, when sizes differ, when the port is taken by another job, when the
  ///           prefix in the store was used before; what the store says.
  static Result<std::unique_ptr<Session>> start(const Job& job,
                                                std::map<std::string, std::string> record,
                                                Events events);
  virtual ~Session() = default;

  virtual const Members& members() const = 0;

  /// A fresh authenticated stream socket to `peer`, non-blocking, that its accept() with the same
  /// purpose receives. The caller owns the descriptor and ends it with close(); meanwhile it is
  /// watched for bytes that do not arrive (stalls.hpp).
  virtual Result<int> open(Rank peer, std::string_view purpose, Deadline deadline) = 0;
  virtual Result<int> accept(Rank peer, std::string_view purpose, Deadline deadline) = 0;
  virtual void close(int fd) = 0;

  /// Says that this rank is ready to begin, and waits until all have said so.
  /// Errors    kRankFailed naming who departed first, as start_failure() does; kTimedOut.
  virtual Result<void> begin(Deadline deadline) = 0;

  /// Waits until a rank has departed before all were ready: whose departure it was that ended the
  /// start. None if that has not happened by `deadline`, or never can.
  virtual std::optional<Error> start_failure(Deadline deadline) = 0;

  /// Delivers `message` to Events::notice of every other rank that is alive.
  virtual void flood(std::string_view message) = 0;

  /// Tells the others that this rank leaves, and its final state, then closes everything.
  /// Idempotent.
  virtual void leave(std::string_view state) = 0;
  /// The same for a rank that cannot begin: the others are told why.
  virtual void give_up(const Error& why) = 0;

  /// Connections refused since the start.
  virtual std::uint64_t rejected_connections() const = 0;
};

}  // namespace farandole
