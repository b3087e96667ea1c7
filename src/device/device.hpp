// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "device/local_work.hpp"

namespace farandole {

/// A kind of memory and the processor that works on it.
///
/// Threads   owns() from any; the rest from the engine's driver.
/// Blocking  No call blocks. start() and is_done() do not allocate once the device is in use.
/// Errors    none: what a device cannot do is refused before an operation starts.
class Device {
 public:
  /// Identifies work that was started.
  using Ticket = std::uint64_t;
  static constexpr Ticket kDone = 0;

  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  virtual ~Device() = default;

  /// As in messages: "cpu".
  virtual std::string_view name() const = 0;
  /// Whether `pointer` lies in its memory.
  virtual bool owns(const void* pointer) const = 0;
  /// Whether start() returns only once the work is done.
  virtual bool works_at_once() const = 0;
  /// Starts `work`, whose memory nobody else touches until it is done. kDone if it is done already.
  virtual Ticket start(const LocalWork& work) = 0;
  /// Whether the work that start() gave this ticket for is done. Not called again after a true.
  virtual bool is_done(Ticket ticket) = 0;
};

/// Host memory. Owns every pointer that no other device owns.
class CpuDevice final : public Device {
 public:
  std::string_view name() const override { return "cpu"; }
  bool owns(const void*) const override { return true; }
  bool works_at_once() const override { return true; }
  Ticket start(const LocalWork& work) override {
    run(work);
    return kDone;
  }
  bool is_done(Ticket) override { return true; }
};

}  // namespace farandole
