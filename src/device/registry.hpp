// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "device/device.hpp"

namespace farandole {

/// The devices of this process besides the CPU.
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
};

}  // namespace farandole
