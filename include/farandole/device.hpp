// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

namespace farandole {

/// The two words that order an operation among the work of a device's stream. They lie in host
/// memory that the device reads and writes; the library only loads and stores them, so it never
/// waits for the device and makes no call into its driver.
///
/// The operation begins once `*in` is `in_value`: the input is there. Before, nothing touches its
/// buffers, and its deadline does not run. However it ends, with an error too, `*out` becomes
/// `out_value`: nothing touches its buffers any more. Either word may be missing.
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

}  // namespace farandole
