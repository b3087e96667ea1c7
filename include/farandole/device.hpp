// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "farandole/result.hpp"

namespace farandole {

/// Two words that order an operation within the work of a device's stream. They lie in host memory
/// that the device reads and writes. The library only loads and stores them, so it never waits for
/// the device and makes no call into its driver.
///
/// The operation begins once `*in` equals `in_value`, which says that the input is ready. Until
/// then nothing touches its buffers, and its deadline does not run. When the operation has ended,
/// with success or an error, `*out` becomes `out_value`, which says that nothing touches its
/// buffers any more. Either word may be null.
///
/// Memory    both words outlive the operation.
/// Threads   the device writes `*in` and the library `*out`, each with release order.
struct Gate {
  const std::atomic<std::uint32_t>* in = nullptr;
  std::uint32_t in_value = 0;
  std::atomic<std::uint32_t>* out = nullptr;
  std::uint32_t out_value = 0;

  bool is_open() const { return in == nullptr || in->load(std::memory_order_acquire) == in_value; }
  void leave() const {
    if (out != nullptr) out->store(out_value, std::memory_order_release);
  }
};

/// Makes this process know memory of devices of a kind; there is "cuda". Until then such memory is
/// taken for the host's. A call whose buffers lie in it is ordered with CallOptions::stream.
/// Idempotent.
///
/// Errors    kInvalidArgument: no such kind. kUnsupported: the machine has no such device.
/// Threads   any.
Result<void> use_devices(std::string_view kind);

/// Has what stream `after` is given from now on come after what stream `before` holds now. Both are
/// streams of the device in whose memory `pointer` lies. Does not block.
///
/// Errors    kInvalidArgument: the pointer is not in memory of a device that use_devices() knows.
/// Threads   any.
Result<void> order_streams(const void* pointer, void* before, void* after);

}  // namespace farandole
