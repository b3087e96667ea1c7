// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "frontend/event_relay.hpp"

namespace farandole {
namespace {

constexpr std::string_view kCycleCall = "cycle ";

}  // namespace

std::string cycle_call(std::uint32_t number) {
  return std::string(kCycleCall) + std::to_string(number);
}

void EventRelay::set_answer(Gathering::Flood answer) {
  const std::lock_guard lock(mutex_);
  answer_ = std::move(answer);
}

void EventRelay::departed(const Departure& departure) {
  gathering_.departed(departure);
  const std::lock_guard lock(mutex_);
  if (!departure.clean) deaths_.push_back(departure);
  died_.notify_all();
  if (engine_ != nullptr) {
    engine_->departed(departure);
  } else {
    early_.push_back(departure);
    if (watch_) watch_(departure);
  }
}

void EventRelay::watch(std::function<void(const Departure&)> gone) {
  const std::lock_guard lock(mutex_);
  watch_ = std::move(gone);
  for (const Departure& departure : early_) watch_(departure);
}

std::optional<Departure> EventRelay::death(const std::function<bool(Rank)>& concerned,
                                           Deadline limit) {
  std::unique_lock lock(mutex_);
  for (;;) {
    for (const Departure& death : deaths_) {
      if (concerned(death.rank)) return death;
    }
    if (limit.passed()) return std::nullopt;
    died_.wait_until(lock, limit.when());
  }
}

void EventRelay::started() {
  const std::lock_guard lock(mutex_);
  watch_ = nullptr;
}

void EventRelay::add_cycle_listener(std::uint32_t number, std::function<void()> called) {
  const std::lock_guard lock(mutex_);
  cycle_listeners_[number] = std::move(called);
}

void EventRelay::remove_cycle_listener(std::uint32_t number) {
  const std::lock_guard lock(mutex_);
  cycle_listeners_.erase(number);
}

void EventRelay::notice(Rank from, std::string_view message) {
  std::string answer;
  const bool taken = gathering_.notice(from, message, answer);
  if (!answer.empty()) return this->answer(answer);
  if (taken) return;
  const std::lock_guard lock(mutex_);
  if (message.starts_with(kCycleCall)) {
    for (const auto& [number, called] : cycle_listeners_) {
      if (message == cycle_call(number)) called();
    }
    return;
  }
  if (engine_ != nullptr) {
    engine_->notice(from, message);
  } else {
    early_notices_.emplace_back(from, message);
  }
}

void EventRelay::answer(const std::string& message) {
  Gathering::Flood flood;
  {
    const std::lock_guard lock(mutex_);
    if (engine_ == nullptr) return;
    engine_->notice(Rank{0}, message);
    flood = answer_;
  }
  if (flood) flood(message);
}

void EventRelay::suspect(Rank peer) {
  const std::lock_guard lock(mutex_);
  if (engine_ != nullptr) engine_->suspect(peer);
}

void EventRelay::stalled(Rank from, Rank to, std::string_view what) {
  const std::lock_guard lock(mutex_);
  if (engine_ != nullptr) engine_->stalled(from, to, what);
}

void EventRelay::open(Engine& engine) {
  const std::lock_guard lock(mutex_);
  engine_ = &engine;
  for (const Departure& departure : early_) engine.departed(departure);
  for (const auto& [from, message] : early_notices_) engine.notice(from, message);
  early_.clear();
  early_notices_.clear();
}

void EventRelay::close() {
  const std::lock_guard lock(mutex_);
  engine_ = nullptr;
  watch_ = nullptr;
  answer_ = nullptr;
}

}  // namespace farandole
