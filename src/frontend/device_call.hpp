// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "device/stream_device.hpp"
#include "farandole/farandole.hpp"
#include "frontend/call.hpp"

namespace farandole {

/// Errors of calls on device memory, which have returned long before they fail: the first one that
/// nobody has heard of, and one that has broken the communicator.
///
/// Threads   any.
class LateErrors {
 public:
  void set(const void* call, const Error& error);
  /// What the next call is to return; once, unless the communicator is broken.
  std::optional<Error> take();
  /// The caller of this call has heard of its error.
  void forget(const void* call);

 private:
  std::mutex mutex_;
  std::optional<Error> first_, lasting_;
  const void* call_ = nullptr;  // whose error it is
};

/// A call on a device's memory: an operation per piece, and the end of all on the device.
///
/// Threads   one call at a time.
class DeviceRun {
 public:
  static std::shared_ptr<DeviceRun> create(std::vector<Request> pieces,
                                           std::shared_ptr<DeviceEnd> end,
                                           std::shared_ptr<LateErrors> errors);
  Result<void> wait();
  Result<bool> wait_for(std::chrono::milliseconds timeout);
  Result<bool> test();
  Result<void> order(void* stream);
  void abort(const std::string& why);
  /// The messages have arrived by then; the device may still copy them.
  Result<void> on_complete(std::function<void(const Result<void>&)> told);

 private:
  DeviceRun(std::vector<Request> pieces, std::shared_ptr<DeviceEnd> end,
            std::shared_ptr<LateErrors> errors)
      : pieces_(std::move(pieces)), end_(std::move(end)), errors_(std::move(errors)) {}
  /// The pieces' first error, which is no late one any more.
  Result<void> outcome();
  std::vector<Request> pieces_;  // at least one
  const std::shared_ptr<DeviceEnd> end_;
  const std::shared_ptr<LateErrors> errors_;
};

/// The device in whose memory the call's buffers lie; null for memory of the host.
///
/// Errors    kInvalidArgument: they lie in different memory.
Result<std::shared_ptr<StreamDevice>> stream_device_of(const Call& call, const Group& group);

Result<std::shared_ptr<StreamDevice>> stream_device_of(std::span<const Message> messages);

/// Enqueues a call on such memory and returns. `blocks`: what is enqueued on the call's stream
/// later comes after it; else whoever uses the buffers orders that by the request.
///
/// Errors    those of an earlier call that nobody has heard of; those of start() for memory of the
///           host; those of HostTransfer.
/// Blocking  the first call of this process on a device, and the first ones that are larger than
///           any before: the device's memory of the host is made then.
Result<std::shared_ptr<DeviceRun>> start_on_device(const Call& call,
                                                   const std::shared_ptr<CommunicatorState>& state,
                                                   const std::shared_ptr<StreamDevice>& device,
                                                   bool blocks);
Result<std::shared_ptr<DeviceRun>> start_on_device(std::span<const Message> messages,
                                                   const CallOptions& options,
                                                   const std::shared_ptr<CommunicatorState>& state,
                                                   const std::shared_ptr<StreamDevice>& device,
                                                   bool blocks);

}  // namespace farandole
