// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace farandole {

struct Event {
  enum class Kind : std::uint8_t {
    kEnter,   // subject: a walker, which steps on
    kBegin,   // subject: a message, whose first byte leaves
    kEnd,     // subject: a message; detail: the version of its end
    kAction,  // subject: a walker; detail: its action that is finished
  };
  double time = 0;
  Kind kind = Kind::kEnter;
  std::uint32_t subject = 0, detail = 0;
};

/// Events, the earliest first; of those at one time, in any order that is always the same.
class EventQueue {
 public:
  bool empty() const { return heap_.empty(); }
  double next_time() const { return heap_.front().time; }
  void push(const Event& event) {
    heap_.push_back(event);
    std::push_heap(heap_.begin(), heap_.end(), later);
  }
  Event pop() {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    const Event event = heap_.back();
    heap_.pop_back();
    return event;
  }

 private:
  static bool later(const Event& a, const Event& b) { return a.time > b.time; }
  std::vector<Event> heap_;
};

}  // namespace farandole
