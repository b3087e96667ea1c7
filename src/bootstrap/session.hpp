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

/// A rank that is no longer there. A clean one has called shutdown(); `state` is its final state.
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
/// table; then each rank keeps control sockets to its neighbours in a binary tree over the ranks. A
/// neighbour whose socket closes without a departure has died; one that is silent for Job::timeout
/// counts as dead. Both events are flooded over the tree at once.
///
/// Threads   start() on the caller's thread; afterwards one control thread, asleep in poll(),
///           owns the sockets. open(), accept(), flood(), leave() from any thread.
/// Security  one listening port per process; connections that fail the handshake, stall, or send
///           more than it allows are dropped and counted, and change nothing.
/// Starting  if a rank departs before every rank has called begin(), the start fails on all ranks:
///           open(), accept() and begin() fail and name the first that departed.
/// Blocking  start(), open(), accept(), begin() block up to their deadline; leave() for about
///           250 ms, and up to three seconds if a neighbour does not answer.
class Session {
 public:
  struct Events {
    /// On the control thread, once per rank, in the order of the events. Must not block.
    std::function<void(const Departure&)> departed;
    /// On the control thread: a message that another rank flooded.
    std::function<void(Rank from, std::string_view message)> notice;
    /// On the control thread: the launcher is gone. The process is killed two seconds later, so
    /// that nothing outlives its launcher; until then this callback may report that. May be empty.
    std::function<void()> launcher_died = {};
    /// On the control thread: every rank is ready to begin. A departure that is reported before
    /// this ends the start on all ranks, a later one does not.
    std::function<void()> started = {};
    /// On the control thread, on every rank: both ranks live, but `what` from one to the other does
    /// not arrive. Once per report; both ends may report it.
    std::function<void(Rank from, Rank to, std::string_view what)> stalled = {};
  };

  /// Rendezvous with all ranks of the job. `record` is published in this rank's Member. `job` is
  /// complete (complete.hpp).
  ///
  /// Errors    kTimedOut naming the ranks that did not come; kInvalidArgument when two processes
  ///           claim one rank, when sizes differ, when the port is taken by another job, when the
  ///           prefix in the store was used before; those of the store.
  static Result<std::unique_ptr<Session>> start(const Job& job,
                                                std::map<std::string, std::string> record,
                                                Events events);
  virtual ~Session() = default;

  virtual const Members& members() const = 0;

  /// Opens a new authenticated stream socket to `peer`, non-blocking, whose other end that rank's
  /// accept() with the same purpose gets. The caller owns the descriptor and ends it with close();
  /// until then it is watched for bytes that do not arrive (stalls.hpp).
  virtual Result<int> open(Rank peer, std::string_view purpose, Deadline deadline) = 0;
  virtual Result<int> accept(Rank peer, std::string_view purpose, Deadline deadline) = 0;
  virtual void close(int fd) = 0;

  /// Says that this rank is ready to begin, and waits until all ranks have said so.
  ///
  /// Errors    kRankFailed naming the rank that departed first, as start_failure() does; kTimedOut.
  virtual Result<void> begin(Deadline deadline) = 0;

  /// Waits until a rank departs before all are ready, and returns the error that names the
  /// departure which ended the start. None if there is no such departure by `deadline`, or can be
  /// none any more.
  virtual std::optional<Error> start_failure(Deadline deadline) = 0;

  /// Delivers `message` to Events::notice of every other rank that is alive.
  virtual void flood(std::string_view message) = 0;

  /// Tells the others that this rank leaves, and its final state, then closes everything.
  /// Idempotent.
  virtual void leave(std::string_view state) = 0;
  /// The same for a rank that cannot begin: the other ranks are told why.
  virtual void give_up(const Error& why) = 0;

  /// Connections refused since the start.
  virtual std::uint64_t rejected_connections() const = 0;
};

}  // namespace farandole
