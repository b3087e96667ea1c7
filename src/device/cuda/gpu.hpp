// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "device/cuda/driver.hpp"

namespace farandole::cuda {

/// One GPU and its primary context, which frameworks use as well.
///
/// Threads   any.
/// Errors    those of Driver; kInvalidArgument: no such device.
class Gpu {
 public:
  static Result<std::shared_ptr<const Gpu>> open(const Driver& driver, int ordinal);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  const Driver& driver() const { return driver_; }
  const Api& api() const { return driver_.api(); }
  int ordinal() const { return ordinal_; }
  const std::string& name() const { return name_; }  // "NVIDIA H200"

  /// Makes the context current on this thread, and puts back the one that was.
  class Scope {
   public:
    explicit Scope(const Gpu& gpu);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    const Gpu& gpu_;
    Context before_ = nullptr;
  };

 private:
  Gpu(const Driver& driver, int ordinal) : driver_(driver), ordinal_(ordinal) {}
  const Driver& driver_;
  const int ordinal_;
  std::string name_;
  Context context_ = nullptr;
};

/// A stream of the library's own: urgent, and not ordered with the default stream.
class OwnStream {
 public:
  static Result<OwnStream> create(std::shared_ptr<const Gpu> gpu);
  OwnStream(OwnStream&& other) noexcept
      : gpu_(std::move(other.gpu_)), stream_(std::exchange(other.stream_, nullptr)) {}
  OwnStream& operator=(OwnStream&& other) noexcept {
    std::swap(gpu_, other.gpu_);
    std::swap(stream_, other.stream_);
    return *this;
  }
  ~OwnStream();
  Stream get() const { return stream_; }

 private:
  OwnStream(std::shared_ptr<const Gpu> gpu, Stream stream)
      : gpu_(std::move(gpu)), stream_(stream) {}
  std::shared_ptr<const Gpu> gpu_;
  Stream stream_ = nullptr;
};

/// Events of one GPU. One that nobody holds any more is given out again.
class EventPool : public std::enable_shared_from_this<EventPool> {
 public:
  explicit EventPool(std::shared_ptr<const Gpu> gpu) : gpu_(std::move(gpu)) {}
  ~EventPool();
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;
  using Held = std::shared_ptr<EventOfDriver>;
  Result<Held> take();
  const Gpu& gpu() const { return *gpu_; }

 private:
  const std::shared_ptr<const Gpu> gpu_;
  std::mutex mutex_;
  std::vector<Event> free_;
};

}  // namespace farandole::cuda
