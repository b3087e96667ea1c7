// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "device/cuda/api.hpp"
#include "simcuda/streams.hpp"

namespace simcuda {

// More of cuda.h than the library calls.
using farandole::cuda::Address;
struct IpcHandle {
  char bytes[64];
};
inline constexpr unsigned kEventBetweenProcesses = 4;

/// What every call of the driver does first: counts itself, fails if SIMCUDA_FAIL=CALL:N:STATUS
/// says so of its N-th call in this process, and before cuInit().
farandole::cuda::Status entered(std::string_view call);
void set_initialized();

/// The device of the calling thread's context; null if it has none.
DeviceState*& current();
DeviceState* device_of(int ordinal);  // null if there is none

/// What the driver holds for this process.
struct Counts {
  unsigned device, imported, pinned, registered, streams, events;
};
std::atomic<unsigned>& living_events();

}  // namespace simcuda

// A function of the driver; ENTER() is its first line.
#define SIMCUDA_API extern "C" __attribute__((visibility("default"))) farandole::cuda::Status
#define ENTER(call)                                                                       \
  if (const auto refused = simcuda::entered(#call); refused != farandole::cuda::kSuccess) \
  return refused
#define NEED_CONTEXT() \
  if (simcuda::current() == nullptr) return farandole::cuda::kInvalidContext
