// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace farandole {

struct Event {
  enum class Kind : std::uint8_t {
    kEnter,   // subject: a walker, which goes on
    kBegin,   // subject: a message, whose first byte leaves
    kEnd,     // subject: a message; detail: the version of its end
    kAction,  // subject: a walker; detail: its action that is finished
  };
  double time = 0;
  Kind kind = Kind::kEnter;
  std::uint32_t subject = 0, detail = 0;
};

/// Events, the earliest first. Those at the same time come in an arbitrary order, but always the
/// same one.
///
/// Memory    a heap whose nodes have four children: half as deep as one with two, so that half as
///           many cache lines are touched.
class EventQueue {
 public:
  bool empty() const { return heap_.empty(); }
  double next_time() const { return heap_.front().time; }

  void push(const Event& event) {
    std::size_t at = heap_.size();
    heap_.push_back(event);
    for (; at > 0; at = (at - 1) / 4) {
      const Event& parent = heap_[(at - 1) / 4];
      if (parent.time <= event.time) break;
      heap_[at] = parent;
    }
    heap_[at] = event;
  }

  Event pop() {
    const Event first = heap_.front(), last = heap_.back();
    heap_.pop_back();
    const std::size_t size = heap_.size();
    if (size == 0) return first;
    std::size_t at = 0;
    for (std::size_t child = 1; child < size; child = 4 * at + 1) {
      const std::size_t end = std::min(child + 4, size);
      for (std::size_t other = child + 1; other < end; ++other) {
        if (heap_[other].time < heap_[child].time) child = other;
      }
      if (heap_[child].time >= last.time) break;
      heap_[at] = heap_[child];
      at = child;
    }
    heap_[at] = last;
    return first;
  }

 private:
  std::vector<Event> heap_;
};

}  // namespace farandole
