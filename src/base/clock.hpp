// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>

namespace farandole {

/// The clock of the whole library: the system's steady clock, or a VirtualTime while one exists.
/// Except for base/ticks.hpp, no other code in src/ reads a system clock.
///
/// Threads   any.
class Clock {
 public:
  using time_point = std::chrono::steady_clock::time_point;
  using duration = time_point::duration;

  static time_point now() {
    const Count* time = virtual_.load(std::memory_order_relaxed);
    return time == nullptr ? std::chrono::steady_clock::now() : read(*time);
  }
  static bool is_virtual() { return virtual_.load(std::memory_order_relaxed) != nullptr; }

 private:
  friend class VirtualTime;
  using Count = std::atomic<duration::rep>;
  static time_point read(const Count& time) {
    return time_point(duration(time.load(std::memory_order_relaxed)));
  }
  inline static constinit std::atomic<const Count*> virtual_{nullptr};
};

/// While one exists, Clock and Ticks of the whole process show its time, which only advance_to()
/// moves. For simulations. At most one at a time, made while no other thread reads the clock.
///
/// Threads   advance_to() from one at a time.
class VirtualTime {
 public:
  explicit VirtualTime(Clock::time_point start) : now_(start.time_since_epoch().count()) {
    Clock::virtual_.store(&now_);
  }
  ~VirtualTime() { Clock::virtual_.store(nullptr); }
  VirtualTime(const VirtualTime&) = delete;
  VirtualTime& operator=(const VirtualTime&) = delete;

  Clock::time_point now() const { return Clock::read(now_); }
  /// Never goes back: an earlier time changes nothing.
  void advance_to(Clock::time_point when) {
    if (when > now()) now_.store(when.time_since_epoch().count(), std::memory_order_relaxed);
  }

 private:
  Clock::Count now_;
};

/// A point in time after which waiting is an error.
class Deadline {
 public:
  static Deadline never() { return Deadline(Clock::time_point::max()); }
  static Deadline after(Clock::duration duration) { return Deadline(Clock::now() + duration); }

  bool passed() const { return when_ != Clock::time_point::max() && Clock::now() >= when_; }
  /// Milliseconds left, rounded up, between 0 and `most`; what poll() and epoll_wait() take.
  int remaining_ms(int most) const {
    if (when_ == Clock::time_point::max()) return most;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(when_ - Clock::now()).count();
    return left <= 0 ? 0 : left < most ? static_cast<int>(left) : most;
  }
  Clock::time_point when() const { return when_; }

 private:
  explicit Deadline(Clock::time_point when) : when_(when) {}
  Clock::time_point when_;
};

}  // namespace farandole
