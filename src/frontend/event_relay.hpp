// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bootstrap/session.hpp"
#include "engine/engine.hpp"
#include "frontend/gathering.hpp"

namespace farandole {

/// Passes membership events to the engine, and keeps those that come before the engine exists.
/// Messages about communicators that are being made go to `gathering` at once.
///
/// Threads   any.
class EventRelay {
 public:
  explicit EventRelay(Gathering& gathering) : gathering_(gathering) {}
  /// `answer` floods the answer to a message; it is called without a lock.
  void set_answer(Gathering::Flood answer);
  void departed(const Departure& departure);
  void notice(Rank from, std::string_view message);
  void suspect(Rank peer);
  void stalled(Rank from, Rank to, std::string_view what);
  /// Runs `called` when a rank asks for a cycle of the coordinator with this number.
  void add_cycle_listener(std::uint32_t number, std::function<void()> called);
  void remove_cycle_listener(std::uint32_t number);
  /// Until started(), open() or close(), `gone` is told of every departure, and at once of earlier
  /// ones.
  void watch(std::function<void(const Departure&)> gone);
  /// Every rank is ready to begin. A rank that leaves after this may have done its part.
  void started();
  /// Waits until `limit` for the death of a rank for which `concerned` holds; returns the first
  /// one.
  std::optional<Departure> death(const std::function<bool(Rank)>& concerned, Deadline limit);
  /// The engine must exist until close() has returned.
  void open(Engine& engine);
  void close();

 private:
  void answer(const std::string& message);

  Gathering& gathering_;
  std::mutex mutex_;
  Gathering::Flood answer_;
  Engine* engine_ = nullptr;
  std::function<void(const Departure&)> watch_;
  std::map<std::uint32_t, std::function<void()>> cycle_listeners_;
  std::vector<Departure> early_;
  std::vector<Departure> deaths_;
  std::condition_variable died_;
  std::vector<std::pair<Rank, std::string>> early_notices_;
};

/// The message that a rank floods to make all ranks take part in a coordinator's cycle.
std::string cycle_call(std::uint32_t number);

}  // namespace farandole
