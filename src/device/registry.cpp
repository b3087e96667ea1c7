// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "device/registry.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "device/cuda/device.hpp"

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

void DeviceRegistry::add(std::shared_ptr<StreamDevice> device) {
  const std::lock_guard lock(mutex_);
  with_streams_.push_back(std::move(device));
  any_streams_ = true;
}

std::shared_ptr<StreamDevice> DeviceRegistry::stream_device_of(const void* pointer) const {
  if (!any_streams()) return nullptr;
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(
      with_streams_, [&](const auto& device) { return device->owns(pointer); });
  return found == with_streams_.end() ? nullptr : *found;
}

Result<void> use_devices(std::string_view kind) {
  static constexpr struct {
    std::string_view name;
    Result<void> (*add)();
  } kKinds[] = {{"cuda", &cuda::add_gpus}};
  for (const auto& row : kKinds) {
    if (row.name == kind) return row.add();
  }
  return Error{ErrorKind::kInvalidArgument,
               "There is no kind of device '" + std::string(kind) + "', there is 'cuda'."};
}

Result<void> order_streams(const void* pointer, void* before, void* after) {
  const auto device = DeviceRegistry::instance().stream_device_of(pointer);
  if (device != nullptr) return device->order(before, after);
  return Error{ErrorKind::kInvalidArgument,
               "order_streams: argument 'pointer' is memory of the host, allowed is memory of a "
               "device that use_devices() knows."};
}

}  // namespace farandole
