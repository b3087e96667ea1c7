// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "device/device.hpp"
#include "device/stream_device.hpp"

namespace farandole {

/// The devices of this process besides the CPU: those that work on memory when the engine says so,
/// and those whose memory only their own streams reach.
///
/// Threads   any.
class DeviceRegistry {
 public:
  static DeviceRegistry& instance();

  void add(std::shared_ptr<Device> device);
  /// Operations that run on the device keep it alive.
  void remove(const Device& device);
  /// The device in whose memory `pointer` lies; the CPU if no other device owns it.
  std::shared_ptr<Device> owner(const void* pointer) const;
  void add(std::shared_ptr<StreamDevice> device);
  /// The device whose streams alone reach `pointer`; null for memory of the host.
  std::shared_ptr<StreamDevice> stream_device_of(const void* pointer) const;
  static bool any_streams() { return any_streams_.load(std::memory_order_acquire); }

  /// Whether both lie in the memory of one device.
  static bool owns_alike(const void* a, const void* b) {
    if (!any_.load(std::memory_order_acquire) || a == b) return true;
    return instance().owner(a) == instance().owner(b);
  }

 private:
  DeviceRegistry() = default;
  static inline std::atomic<bool> any_{false};  // most processes have none: they take no lock
  const std::shared_ptr<Device> cpu_ = std::make_shared<CpuDevice>();
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<Device>> added_;
  static inline std::atomic<bool> any_streams_{false};
  std::vector<std::shared_ptr<StreamDevice>> with_streams_;
};

}  // namespace farandole
