// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/device.hpp"

#include <utility>

#include "device/cuda/host_transfer.hpp"
#include "device/registry.hpp"

namespace farandole::cuda {

bool CudaDevice::owns(const void* pointer) const {
  if (pointer == nullptr || !driver_.here()) return false;
  unsigned type = 0;
  int ordinal = -1;
  PointerAttribute attributes[] = {kMemoryType, kDeviceOrdinal};
  void* values[] = {&type, &ordinal};
  const Status status =
      driver_.api().pointer_attributes(2, attributes, values, reinterpret_cast<Address>(pointer));
  return status == kSuccess && type == kDeviceMemory && ordinal == ordinal_;
}

Result<std::shared_ptr<const Gpu>> CudaDevice::gpu() {
  if (!driver_.here()) return driver_.forked_error("call on memory of " + name_);
  const std::lock_guard lock(mutex_);
  if (gpu_ == nullptr) {
    auto opened = Gpu::open(driver_, ordinal_);
    if (!opened) return opened.error();
    gpu_ = *std::move(opened);
    events_ = std::make_shared<EventPool>(gpu_);
  }
  return gpu_;
}

Result<void> CudaDevice::order(void* before, void* after) {
  auto opened = gpu();
  if (!opened) return opened.error();
  const Gpu& gpu = **opened;
  const Gpu::Scope scope(gpu);
  auto event = events_->take();
  if (!event) return event.error();
  const Status recorded = gpu.api().event_record(event->get(), static_cast<Stream>(before));
  if (auto done = gpu.driver().check(recorded, "cuEventRecord"); !done) return done;
  return gpu.driver().check(
      gpu.api().stream_wait_event(static_cast<Stream>(after), event->get(), 0),
      "cuStreamWaitEvent");
}

Result<std::unique_ptr<HostTransfer>> CudaDevice::make_host_transfer(
    std::shared_ptr<farandole::Memory> memory) {
  auto opened = gpu();
  if (!opened) return opened.error();
  return CudaHostTransfer::create(*std::move(opened), std::move(memory));
}

Result<void> add_gpus() {
  const Result<Driver>& driver = Driver::instance();
  if (!driver) return driver.error();
  static const bool added = [&] {
    for (int ordinal = 0; ordinal < driver->device_count(); ++ordinal) {
      DeviceRegistry::instance().add(std::make_shared<CudaDevice>(*driver, ordinal));
    }
    return true;
  }();
  static_cast<void>(added);
  return {};
}

}  // namespace farandole::cuda
