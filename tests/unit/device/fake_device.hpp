// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "device/registry.hpp"

namespace farandole::testing {

/// A device that works on its own, in any order and with random delays, and owns all memory while
/// it is in the registry. What the engine does too early or too late gives wrong results.
class FakeDevice final : public Device {
 public:
  explicit FakeDevice(std::uint64_t seed) : random_(seed) {
    waiting_.reserve(kMany);
    open_.reserve(kMany);
    worker_ = std::thread([this] { work(); });
  }
  ~FakeDevice() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    more_.notify_one();
    worker_.join();
  }

  std::string_view name() const override { return "fake"; }
  bool owns(const void*) const override { return true; }
  bool works_at_once() const override { return false; }
  Ticket start(const LocalWork& work) override {
    const std::lock_guard lock(mutex_);
    waiting_.emplace_back(++last_, work);
    open_.push_back(last_);
    more_.notify_one();
    return last_;
  }
  bool is_done(Ticket ticket) override {
    const std::lock_guard lock(mutex_);
    return std::ranges::find(open_, ticket) == open_.end();
  }
  std::uint64_t started() const {
    const std::lock_guard lock(mutex_);
    return last_;
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      more_.wait(lock, [&] { return stopping_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      std::swap(waiting_[random_() % waiting_.size()], waiting_.back());
      const auto [ticket, next] = waiting_.back();
      waiting_.pop_back();
      const std::chrono::microseconds delay(random_() % 8 == 0 ? random_() % 100 : 0);
      lock.unlock();
      if (delay.count() > 0) std::this_thread::sleep_for(delay);
      run(next);
      lock.lock();
      std::erase(open_, ticket);
    }
  }

  static constexpr std::size_t kMany = 4096;
  mutable std::mutex mutex_;
  std::condition_variable more_;
  std::mt19937_64 random_;
  bool stopping_ = false;
  Ticket last_ = kDone;
  std::vector<std::pair<Ticket, LocalWork>> waiting_;
  std::vector<Ticket> open_;
  std::thread worker_;
};

/// Keeps a fake device in the registry.
class FakeDeviceGuard {
 public:
  explicit FakeDeviceGuard(std::uint64_t seed) : device_(std::make_shared<FakeDevice>(seed)) {
    DeviceRegistry::instance().add(device_);
  }
  FakeDeviceGuard(const FakeDeviceGuard&) = delete;
  FakeDeviceGuard& operator=(const FakeDeviceGuard&) = delete;
  ~FakeDeviceGuard() { DeviceRegistry::instance().remove(*device_); }
  const FakeDevice& device() const { return *device_; }

 private:
  std::shared_ptr<FakeDevice> device_;
};

}  // namespace farandole::testing
