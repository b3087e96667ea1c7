// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>

#include "device/cpu/memory.hpp"
#include "device/host_transfer.hpp"

namespace farandole {

/// Memory that the host does not touch: only work on a device's streams reads and writes it, in the
/// order of the streams.
///
/// Threads   any.
class StreamDevice {
 public:
  virtual ~StreamDevice() = default;
  /// "cuda:0"
  virtual std::string_view name() const = 0;
  /// Whether `pointer` lies in its memory.
  virtual bool owns(const void* pointer) const = 0;
  /// What `after` is given from now on comes after what `before` holds now.
  virtual Result<void> order(void* before, void* after) = 0;
  /// What carries calls on this memory through `memory`, the library's own. Blocks.
  virtual Result<std::unique_ptr<HostTransfer>> make_host_transfer(
      std::shared_ptr<Memory> memory) = 0;
};

}  // namespace farandole
