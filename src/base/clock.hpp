// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

namespace farandole {

using Clock = std::chrono::steady_clock;

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
