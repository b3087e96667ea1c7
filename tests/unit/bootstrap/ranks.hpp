// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "bootstrap/session.hpp"
#include "bootstrap/socket.hpp"

namespace farandole::test {

using namespace std::chrono_literals;

/// No wait in these tests is longer; none is expected to come near.
inline constexpr auto kPatience = 60s;

/// A listening socket on a free loopback port, as a launcher hands to rank 0.
Descriptor launcher_socket();

/// A job of `size` ranks on this host, at `socket`'s port; rank 0 inherits the socket.
Job local_job(int rank, int size, const Descriptor& socket);

/// The descriptors that this process has open.
std::set<std::string> open_descriptors();

/// What one rank has heard, for waiting on.
/// Threads   any.
class Ear {
 public:
  Session::Events events();
  /// Waits until `ready` holds for what was heard; false after kPatience.
  bool wait_for(const std::function<bool(const Ear&)>& ready);
  bool wait_for_departures(std::size_t count);
  std::vector<Departure> departures() const;
  std::vector<std::pair<int, std::string>> notices() const;

  // Valid inside wait_for()'s condition.
  std::vector<Departure> departed;
  std::vector<std::pair<int, std::string>> noticed;
  bool launcher_died = false;

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
};

/// All ranks of a job in this process. `adjust` may change a rank's job before it starts.
struct Ranks {
  explicit Ranks(int size, const std::function<void(Job&)>& adjust = {});
  ~Ranks();
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  std::size_t size() const { return sessions.size(); }
  Session& operator[](int rank) { return *sessions[static_cast<std::size_t>(rank)]; }
  Ear& ear(int rank) { return *ears[static_cast<std::size_t>(rank)]; }
  void leave_all(const std::string& state = "");
  std::string errors() const;  // empty when all have started

  Descriptor socket;
  std::vector<std::unique_ptr<Ear>> ears;
  std::vector<std::unique_ptr<Session>> sessions;  // null where start() failed
  std::vector<Error> failures;
};

/// Runs `body(rank)` on one thread per rank and joins them.
void on_threads(int count, const std::function<void(int)>& body);

}  // namespace farandole::test
