// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <deque>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "bootstrap/dial.hpp"
#include "bootstrap/roster.hpp"
#include "bootstrap/session.hpp"

namespace farandole {

/// The data sockets that callers ask for: Session::open() and accept().
///
/// A caller waits on a condition variable; the control thread makes the connections and parks
/// those of peers until they are asked for. A departure ends the waits for that rank; before the
/// job has started it ends all waits.
///
/// Threads   open(), accept(), stop() from any; the rest from the control thread.
class Exchange {
 public:
  Exchange(const Job& job, const Roster& roster);

  /// `wake` makes the control thread turn once more.
  Result<int> open(Rank peer, std::string_view purpose, Deadline deadline,
                   const std::function<void()>& wake);
  Result<int> accept(Rank peer, std::string_view purpose, Deadline deadline);
  /// The waits of Session::begin() and Session::start_failure().
  Result<void> await_start(Deadline deadline);
  std::optional<Error> start_failure(Deadline deadline);
  /// Ends all waits, now and later, and closes what is parked.
  void stop();

  void watch(PollSet& set);
  void serve(const PollSet& set);
  /// The listener's Admission for Purpose::kData.
  Verdict admit(int rank) const;
  void enter(const Identity& identity, Descriptor socket);
  void departed(const Departure& departure);
  void started();
  /// After stop(): drops the calls under way.
  void close();

 private:
  struct Opening {
    int peer;
    std::string purpose;
    Clock::time_point due{};
    std::optional<Dial> dial = std::nullopt;          // the control thread's
    std::optional<Descriptor> socket = std::nullopt;  // guarded by mutex_, as are the next
    bool no_socket = false;                           // there are no descriptors left
    bool abandoned = false;
  };
  using Key = std::pair<int, std::string>;  // peer, purpose

  std::optional<Error> refusal(Rank peer, std::string_view purpose) const;
  std::optional<Error> lost(int peer) const;
  std::optional<Error> failed_start() const;
  Error gone(int rank, std::string_view when) const;
  Error late(const char* what, Rank peer, std::string_view purpose) const;
  template <class Ready>
  bool wait(std::unique_lock<std::mutex>& lock, Deadline deadline, Ready ready);
  void settle(Opening& opening);

  const Job& job_;
  const Roster& roster_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;
  bool started_ = false;
  std::optional<int> first_gone_;                     // before the job had started
  Clock::time_point culprit_known_{};                 // when it is settled which rank is to blame
  std::vector<std::optional<Departure>> departures_;  // index = rank
  std::list<Opening> openings_;
  std::map<Key, std::deque<Descriptor>> parked_;
};

}  // namespace farandole
