// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "device/registry.hpp"

#include <algorithm>
#include <utility>

namespace farandole {

DeviceRegistry& DeviceRegistry::instance() {
  static auto* const registry = new DeviceRegistry;  // threads may outlive static destructors
  return *registry;
}

void DeviceRegistry::add(std::shared_ptr<Device> device) {
  const std::lock_guard lock(mutex_);
  added_.push_back(std::move(device));
  any_ = true;
}

void DeviceRegistry::remove(const Device& device) {
  const std::lock_guard lock(mutex_);
  std::erase_if(added_, [&](const auto& one) { return one.get() == &device; });
  any_ = !added_.empty();
}

std::shared_ptr<Device> DeviceRegistry::owner(const void* pointer) const {
  if (!any_.load(std::memory_order_acquire)) return cpu_;
  const std::lock_guard lock(mutex_);
  const auto found =
      std::ranges::find_if(added_, [&](const auto& one) { return one->owns(pointer); });
  return found == added_.end() ? cpu_ : *found;
}

}  // namespace farandole
