// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "device/cuda/gpu.hpp"
#include "device/stream_device.hpp"

namespace farandole::cuda {

/// The memory of one GPU. Its context is opened when the first call needs it.
class CudaDevice final : public StreamDevice {
 public:
  CudaDevice(const Driver& driver, int ordinal)
      : driver_(driver), ordinal_(ordinal), name_("cuda:" + std::to_string(ordinal)) {}
  std::string_view name() const override { return name_; }
  bool owns(const void* pointer) const override;
  Result<void> order(void* before, void* after) override;
  Result<std::unique_ptr<HostTransfer>> make_host_transfer(
      std::shared_ptr<farandole::Memory> memory) override;

 private:
  Result<std::shared_ptr<const Gpu>> gpu();
  const Driver& driver_;
  const int ordinal_;
  const std::string name_;
  std::mutex mutex_;
  std::shared_ptr<const Gpu> gpu_;  // once it was needed
  std::shared_ptr<EventPool> events_;
};

/// Adds all GPUs to the registry.
///
/// Errors    those of Driver::load().
Result<void> add_gpus();

}  // namespace farandole::cuda
