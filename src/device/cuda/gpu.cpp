// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/gpu.hpp"

#include <array>
#include <utility>

namespace farandole::cuda {

Result<std::shared_ptr<const Gpu>> Gpu::open(const Driver& driver, int ordinal) {
  if (ordinal < 0 || ordinal >= driver.device_count()) {
    return Error{ErrorKind::kInvalidArgument, "There is no GPU " + std::to_string(ordinal) +
                                                  ", this process has " +
                                                  std::to_string(driver.device_count()) + "."};
  }
  const std::shared_ptr<Gpu> gpu(new Gpu(driver, ordinal));
  const Api& api = driver.api();
  int device = 0;
  if (auto done = driver.check(api.device_get(&device, ordinal), "cuDeviceGet"); !done) {
    return done.error();
  }
  std::array<char, 128> name{};
  if (api.device_name(name.data(), static_cast<int>(name.size()), device) == kSuccess) {
    gpu->name_ = name.data();
  }
  const Status status = api.context_retain(&gpu->context_, device);
  if (auto done = driver.check(status, "cuDevicePrimaryCtxRetain"); !done) return done.error();
  return std::shared_ptr<const Gpu>(gpu);
}

Gpu::~Gpu() {
  if (context_ != nullptr && driver_.here()) driver_.api().context_release(ordinal_);
}

Gpu::Scope::Scope(const Gpu& gpu) : gpu_(gpu) {
  gpu.api().context_get(&before_);
  if (before_ != gpu.context_) gpu.api().context_set(gpu.context_);
}

Gpu::Scope::~Scope() {
  if (before_ != gpu_.context_) gpu_.api().context_set(before_);
}

Result<OwnStream> OwnStream::create(std::shared_ptr<const Gpu> gpu) {
  const Gpu::Scope scope(*gpu);
  int least = 0, greatest = 0;
  const Status found = gpu->api().context_priorities(&least, &greatest);
  if (auto done = gpu->driver().check(found, "cuCtxGetStreamPriorityRange"); !done) {
    return done.error();
  }
  Stream stream = nullptr;
  const Status made = gpu->api().stream_create(&stream, kNonBlockingStream, greatest);
  if (auto done = gpu->driver().check(made, "cuStreamCreateWithPriority"); !done) {
    return done.error();
  }
  return OwnStream(std::move(gpu), stream);
}

OwnStream::~OwnStream() {
  if (stream_ == nullptr || !gpu_->driver().here()) return;
  const Gpu::Scope scope(*gpu_);
  gpu_->api().stream_destroy(stream_);
}

EventPool::~EventPool() {
  if (!gpu_->driver().here()) return;
  const Gpu::Scope scope(*gpu_);
  for (const Event event : free_) gpu_->api().event_destroy(event);
}

Result<EventPool::Held> EventPool::take() {
  Event event = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      event = free_.back();
      free_.pop_back();
    }
  }
  if (event == nullptr) {
    const Status status = gpu_->api().event_create(&event, kEventWithoutTime);
    if (auto done = gpu_->driver().check(status, "cuEventCreate"); !done) return done.error();
  }
  return Held(event, [pool = shared_from_this()](Event back) {
    const std::lock_guard lock(pool->mutex_);
    pool->free_.push_back(back);
  });
}

}  // namespace farandole::cuda
