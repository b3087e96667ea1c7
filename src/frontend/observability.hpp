// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "trace/timeline.hpp"

namespace farandole {

/// What the process records about itself, and how its clock compares with rank 0's.
///
/// Threads   any.
class Observability {
 public:
  /// Records into `opened()` from now on.
  ///
  /// Errors    kInvalidArgument if a timeline is being recorded already, and those of `opened`.
  template <class Open>
  Result<void> start_timeline(Open opened);
  /// The timeline that was recorded, for the caller to close; null if there is none.
  std::shared_ptr<coordinator::Timeline> stop_timeline();
  /// The timeline that is being recorded; null if there is none, which takes no lock.
  std::shared_ptr<coordinator::Timeline> timeline();
  bool records_timeline() const { return timeline_on_.load(std::memory_order_relaxed); }

  std::atomic<bool> clock_known{false};
  std::atomic<std::int64_t> clock_offset_ns{0};  // this host's clock plus this is rank 0's

 private:
  std::mutex timeline_mutex_;
  std::shared_ptr<coordinator::Timeline> timeline_;
  std::atomic<bool> timeline_on_{false};
};

template <class Open>
Result<void> Observability::start_timeline(Open opened) {
  const std::lock_guard lock(timeline_mutex_);
  if (timeline_) {
    return Error{ErrorKind::kInvalidArgument,
                 "start_timeline: one is being recorded already; stop_timeline() ends it."};
  }
  auto fresh = opened();
  if (!fresh) return fresh.error();
  timeline_ = *std::move(fresh);
  timeline_on_ = true;
  return {};
}

inline std::shared_ptr<coordinator::Timeline> Observability::stop_timeline() {
  const std::lock_guard lock(timeline_mutex_);
  timeline_on_ = false;
  return std::exchange(timeline_, nullptr);
}

inline std::shared_ptr<coordinator::Timeline> Observability::timeline() {
  if (!records_timeline()) return nullptr;
  const std::lock_guard lock(timeline_mutex_);
  return timeline_;
}

}  // namespace farandole
