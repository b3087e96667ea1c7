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

/// A rank on its way through one call. With tens of thousands of them, what every message looks at
/// has to be small: this is one line of the cache, and the rest lies apart, in Aside.
struct Walker {
  RoundCache::Entry* round = nullptr;  // that it is in
  const TimedAction* actions = nullptr;
  std::uint32_t action_count = 0;
  std::uint32_t open = 0;  // actions that are not finished
  std::uint32_t call = 0;
  std::int32_t rank = 0;
  std::uint32_t next = 0;                           // instruction
  std::int32_t stage_begun = -1, stage_timed = -1;  // the last ones
  std::uint32_t waiting = kNobody;  // the first of the sides of messages that wait here
  bool begins = false;              // a stage, in this round
  bool is_entering = false;         // has paid for the call and may post its actions
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

/// Actions are named by their walker and their number among its round's.
struct ActionName {
  std::uint32_t walker, action;
};

/// What has become of an action that is in order, or that others are in order behind.
inline constexpr std::uint8_t kArrived = 1, kFinished = 2;

struct Message {
  ActionName send, receive;
  double bytes = 0, transfer_bytes = 0, efficiency = 1;
  std::uint32_t version = 0;  // of its end: earlier ones are void
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

/// Values named by numbers; a number that was given back is taken again, its value as it was.
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
