// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "farandole/result.hpp"

namespace farandole {

/// Where memory lives.
struct Device {
  enum class Kind : std::uint8_t { kCpu, kCuda };
  Kind kind = Kind::kCpu;
  int index = 0;
};

/// The order that a communicator's operations obey: they start after the work that was enqueued
/// before them and come before the work enqueued after. On the CPU the stream is the calling
/// thread, so both hold by themselves; a CUDA stream records an event in mark(), polls it in
/// reached(), and waits on the device for resume().
///
/// Threads   mark() from the submitting thread; reached() and resume() from the engine's driver.
/// Blocking  No call blocks the host. None allocates after the first mark().
class Stream {
 public:
  using Mark = std::uint64_t;
  Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  virtual ~Stream() = default;

  virtual Device device() const = 0;
  /// Remembers the work enqueued so far and holds back what comes after.
  virtual Result<Mark> mark() = 0;
  /// True once everything before the mark is finished.
  virtual bool reached(Mark mark) = 0;
  /// Lets the work after the mark go on.
  virtual void resume(Mark mark) = 0;
};

/// The calling thread.
class CpuStream final : public Stream {
 public:
  Device device() const override { return {}; }
  Result<Mark> mark() override { return Mark{0}; }
  bool reached(Mark) override { return true; }
  void resume(Mark) override {}
};

}  // namespace farandole
