// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.hpp"
#include "bootstrap/socket.hpp"

namespace farandole {

/// What one turn of a control loop waits for. Each object adds its descriptors and keeps the slots
/// that it gets; the loop waits once; then each object asks what became ready in its slots.
class PollSet {
 public:
  static constexpr std::size_t kNoSlot = static_cast<std::size_t>(-1);
  std::size_t add(int fd, short events);
  void wake_by(Clock::time_point when) {
    if (when < wake_) wake_ = when;
  }
  /// Sleeps until something is ready or it is time to wake. In a simulation it does not sleep.
  void wait();
  Clock::time_point wake() const { return wake_; }
  bool any_ready() const {
    return std::ranges::any_of(entries_, [](const pollfd& entry) { return entry.revents != 0; });
  }
  /// The events of a slot; none for an object that was added after the wait.
  short ready(std::size_t slot) const {
    return slot < entries_.size() ? entries_[slot].revents : short{0};
  }

 private:
  std::vector<pollfd> entries_;
  Clock::time_point wake_ = Clock::time_point::max();
};

/// A non-blocking stream socket, with the output that waits to be sent.
///
/// A failed write does not end the channel, since data that the peer sent before may still be
/// unread: the output is dropped, and read() finds the end.
class Channel {
 public:
  explicit Channel(Descriptor socket) : socket_(std::move(socket)) {}
  int fd() const { return socket_.fd(); }
  Descriptor take() { return std::move(socket_); }

  void watch(PollSet& set) {
    slot_ = set.add(fd(), static_cast<short>(POLLIN | (pending() ? POLLOUT : 0)));
  }
  short ready(const PollSet& set) const { return set.ready(slot_); }

  /// Sends what the socket takes now and keeps the rest.
  void send(std::string_view bytes);
  void flush();
  bool pending() const { return !output_.empty(); }
  std::size_t pending_bytes() const { return output_.size(); }
  /// Says that no more output follows; the peer then reads the end of the stream.
  void finish();

  /// Reads at most `bytes_max`; empty when nothing is there. `ended` becomes true at the end of
  /// the stream or an error.
  std::string read(std::size_t bytes_max);
  bool ended() const { return ended_; }
  /// Whether the peer has ended its stream and everything before the end was read.
  bool hung_up() const;

 private:
  Descriptor socket_;
  std::string output_;
  std::size_t slot_ = PollSet::kNoSlot;
  bool broken_ = false;  // writing is pointless
  bool ended_ = false;
};

}  // namespace farandole
