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
/// A visitor that fails the handshake, says more than it may, or is not done in time is dropped
/// and counted, as is one that hangs up on our proof; one that just goes away is not. Of more
/// than `visitors_max` at once the oldest is dropped, so that whoever holds connections open
/// shuts nobody out; members try again.
///
/// Threads   one at a time; rejected_connections() from any.
class Listener {
 public:
  /// Who decides about visitors that have proved themselves, and takes those it welcomes.
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
  /// No more visitors; what they were refused before stays counted.
  void close() {
    socket_.close();
    visitors_.clear();
  }
  /// Whether visitors cannot be let in for want of descriptors; it tries again all the same.
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
  Clock::time_point rest_until_{};  // out of descriptors: accept again from here on
  bool exhausted_ = false;
  std::list<Visitor> visitors_;  // oldest first
  std::atomic<std::uint64_t> rejected_{0};
};

}  // namespace farandole
