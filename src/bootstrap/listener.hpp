// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <list>
#include <string>

#include "base/clock.hpp"
#include "bootstrap/channel.hpp"
#include "bootstrap/handshake.hpp"

namespace farandole {

/// The one port of a process: accepts connections and lets each prove itself.
///
/// A visitor that fails the handshake, sends more than it may, is not done in time, or hangs up
/// after our proof is dropped and counted; one that just goes away is not counted. If there are
/// more than `visitors_max` at once, the oldest is dropped, so that a client that holds connections
/// open shuts nobody out; members try again.
///
/// Threads   one at a time; rejected_connections() from any.
class Listener {
 public:
  /// Decides about visitors that have proved themselves, and takes over those that are welcome.
  struct Admission {
    std::function<Verdict(const Identity&)> admit;
    std::function<void(const Identity&, Descriptor)> enter;
  };

  Listener(Descriptor socket, Secret secret, std::size_t visitors_max,
           Clock::duration handshake_time = std::chrono::seconds(5))
      : socket_(std::move(socket)),
        secret_(std::move(secret)),
        visitors_max_(visitors_max),
        handshake_time_(handshake_time) {}

  int fd() const { return socket_.fd(); }
  void watch(PollSet& set);
  void serve(const PollSet& set, const Admission& admission);
  /// Drops all visitors and accepts no more; those that were rejected before stay counted.
  void close() {
    socket_.close();
    visitors_.clear();
  }
  /// Whether visitors cannot be accepted because no descriptors are left; it keeps trying.
  bool exhausted() const { return exhausted_; }
  std::uint64_t rejected_connections() const { return rejected_.load(std::memory_order_relaxed); }

 private:
  struct Visitor {
    Channel channel;
    ServerHandshake handshake;
    Deadline deadline;
    bool done = false;
  };
  void accept_all();
  void converse(Visitor& visitor, const Admission& admission);
  void drop(Visitor& visitor);

  Descriptor socket_;
  Secret secret_;
  std::size_t visitors_max_;
  Clock::duration handshake_time_;
  std::size_t slot_ = PollSet::kNoSlot;
  Clock::time_point rest_until_{};  // after a failed accept(): accept again from then on
  bool exhausted_ = false;
  std::list<Visitor> visitors_;  // oldest first
  std::atomic<std::uint64_t> rejected_{0};
};

}  // namespace farandole
