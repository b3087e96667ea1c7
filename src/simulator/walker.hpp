// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "simulator/fluid.hpp"
#include "simulator/round_cache.hpp"

// The ranks and messages of a simulation by events.
namespace farandole::events {

/// A rank's progress through one call. There may be tens of thousands, so the data that every
/// message reads has to be small: this is one cache line, and the rest is in Aside.
struct Walker {
  RoundCache::Entry* round = nullptr;  // that it is in
  const TimedAction* actions = nullptr;
  std::uint32_t action_count = 0;
  std::uint32_t open = 0;  // actions that are not finished
  std::uint32_t call = 0;
  std::int32_t rank = 0;
  std::uint32_t next = 0;                           // instruction
  std::int32_t stage_begun = -1, stage_timed = -1;  // the last ones
  std::uint32_t waiting = kNobody;                  // the first side of a message that waits here
  bool begins = false;                              // a stage, in this round
  bool is_entering = false;  // pays for the call if needed, then posts its actions
  double slow_down = 1;

  static constexpr std::uint32_t kNobody = 0xffffffff;
  std::span<const TimedAction> round_actions() const { return {actions, action_count}; }
  std::uint32_t rank_number() const { return static_cast<std::uint32_t>(rank); }
};
static_assert(sizeof(Walker) == 64);

struct Aside {
  Counters counters{};
  std::vector<std::uint8_t> progress;  // [action]
};

/// Names an action by its walker and its number in the walker's round.
struct ActionName {
  std::uint32_t walker, action;
};

/// Progress of an action that is `in_order` itself or is followed by one that is.
inline constexpr std::uint8_t kArrived = 1, kFinished = 2;

struct Message {
  ActionName send, receive;
  double bytes = 0, transfer_bytes = 0, efficiency = 1;
  std::uint32_t version = 0;  // of its end; events with earlier ones are void
  Fluid::Flow flow = 0;
  bool flows = false;
};

/// A side of a message that waits for the other one, kept at the receiver.
struct Waiting {
  ActionName name;
  std::int32_t from, lane;
  Action::Kind kind;
  std::uint32_t next;  // that waits there
};

/// Values named by numbers. A number that was given back is used again, with its old value.
template <class T>
class Pool {
 public:
  std::uint32_t take() {
    if (unused_.empty()) {
      values_.emplace_back();
      return static_cast<std::uint32_t>(values_.size() - 1);
    }
    const std::uint32_t number = unused_.back();
    unused_.pop_back();
    return number;
  }
  void give_back(std::uint32_t number) { unused_.push_back(number); }
  T& operator[](std::uint32_t number) { return values_[number]; }
  const T& operator[](std::uint32_t number) const { return values_[number]; }

 private:
  std::vector<T> values_;
  std::vector<std::uint32_t> unused_;
};

}  // namespace farandole::events
