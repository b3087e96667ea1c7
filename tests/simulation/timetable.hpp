// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.hpp"

namespace farandole::simulation {

/// What happens when, in virtual time. Events of one moment happen in the order they were added.
class Timetable {
 public:
  Clock::time_point now() const { return time_.now(); }
  void at(Clock::time_point when, std::function<void()> event) {
    events_.push_back({std::max(when, now()), ++added_, std::move(event)});
    std::push_heap(events_.begin(), events_.end(), later);
  }
  void after(Clock::duration delay, std::function<void()> event) {
    at(now() + delay, std::move(event));
  }
  /// Moves time to the next event and lets it happen; false if there is none.
  bool run_one() {
    if (events_.empty()) return false;
    std::pop_heap(events_.begin(), events_.end(), later);
    const Event next = std::move(events_.back());
    events_.pop_back();
    time_.advance_to(next.when);
    next.event();
    return true;
  }

 private:
  struct Event {
    Clock::time_point when;
    std::uint64_t number;
    std::function<void()> event;
  };
  static bool later(const Event& a, const Event& b) {
    return a.when != b.when ? a.when > b.when : a.number > b.number;
  }
  VirtualTime time_{Clock::time_point(std::chrono::hours(1))};
  std::vector<Event> events_;
  std::uint64_t added_ = 0;
};

}  // namespace farandole::simulation
