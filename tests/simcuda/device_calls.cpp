// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
// The process, its devices and their contexts.
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "simcuda/calls.hpp"
#include "simcuda/settings.hpp"

namespace simcuda {
namespace {

using farandole::cuda::Status;

std::atomic<bool> initialized{false};

struct CallCounts {
  std::mutex mutex;
  std::map<std::string, long, std::less<>> calls;
  std::map<long, unsigned long> threads;
};
CallCounts& call_counts() {
  static auto* const counts = new CallCounts;
  return *counts;
}

/// The status that SIMCUDA_FAIL wants of the n-th call.
Status wanted(std::string_view call, long n) {
  static const std::string wish =
      std::getenv("SIMCUDA_FAIL") != nullptr ? std::getenv("SIMCUDA_FAIL") : "";
  if (wish.empty()) return farandole::cuda::kSuccess;
  const std::string start = std::string(call) + ":" + std::to_string(n) + ":";
  if (wish.rfind(start, 0) != 0) return farandole::cuda::kSuccess;
  return static_cast<Status>(std::atoi(wish.c_str() + start.size()));
}

void on_fault(int, siginfo_t* info, void*) {
  if (const Block* block = Memory::instance().faulted(info->si_addr)) {
    const auto at = static_cast<std::byte*>(info->si_addr) - block->begin;
    die(kFault, "FAULT: the host touches device memory, byte " + std::to_string(at) +
                    " of buffer " + std::to_string(block->id));
  }
  ::signal(SIGSEGV, SIG_DFL);
}

void after_fork() {
  initialized = false;  // a child has none of the driver's threads
}

}  // namespace

Status entered(std::string_view call) {
  const long thread = ::gettid();
  CallCounts& counts = call_counts();
  long n = 0;
  {
    const std::lock_guard lock(counts.mutex);
    ++counts.threads[thread];
    n = ++counts.calls.try_emplace(std::string(call), 0).first->second;
  }
  if (const Status status = wanted(call, n); status != farandole::cuda::kSuccess) return status;
  const bool needs_no_start = call == "cuInit" || call == "cuDriverGetVersion";
  return initialized || needs_no_start ? farandole::cuda::kSuccess
                                       : farandole::cuda::kNotInitialized;
}

void set_initialized() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action{};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO;
    ::sigaction(SIGSEGV, &action, nullptr);
    ::pthread_atfork(nullptr, nullptr, after_fork);
    initialized = true;
  });
}

DeviceState*& current() {
  thread_local DeviceState* device = nullptr;
  return device;
}

DeviceState* device_of(int ordinal) {
  static auto* const devices = [] {
    auto* const made = new std::vector<DeviceState>(static_cast<std::size_t>(settings().devices));
    for (std::size_t i = 0; i < made->size(); ++i) (*made)[i].ordinal = static_cast<int>(i);
    return made;
  }();
  const auto index = static_cast<std::size_t>(ordinal);
  return ordinal < 0 || index >= devices->size() ? nullptr : &(*devices)[index];
}

std::atomic<unsigned>& living_events() {
  static std::atomic<unsigned> events{0};
  return events;
}

}  // namespace simcuda

using namespace farandole::cuda;
using simcuda::current;
using simcuda::DeviceState;
using simcuda::settings;

namespace {

Context handle_of(DeviceState* device) {
  return reinterpret_cast<Context>(device);
}

Status fill(char* text, int bytes, const std::string& value) {
  if (text == nullptr || bytes <= 0) return kInvalidValue;
  std::snprintf(text, static_cast<std::size_t>(bytes), "%s", value.c_str());
  return kSuccess;
}

}  // namespace

SIMCUDA_API cuInit(unsigned flags) {
  ENTER(cuInit);
  if (flags != 0) return kInvalidValue;
  if (settings().devices <= 0) return kNoDevice;
  simcuda::set_initialized();
  return kSuccess;
}

SIMCUDA_API cuDriverGetVersion(int* version) {
  ENTER(cuDriverGetVersion);
  *version = static_cast<int>(settings().version);
  return kSuccess;
}

SIMCUDA_API cuGetErrorName(Status status, const char** name) {
  thread_local char text[32];
  std::snprintf(text, sizeof text, "CUDA_ERROR_%d", static_cast<int>(status));
  *name = text;
  return kSuccess;
}

SIMCUDA_API cuGetErrorString(Status, const char** text) {
  *text = "simulated";
  return kSuccess;
}

SIMCUDA_API cuDeviceGetCount(int* count) {
  ENTER(cuDeviceGetCount);
  *count = static_cast<int>(settings().devices);
  return kSuccess;
}

SIMCUDA_API cuDeviceGet(int* device, int ordinal) {
  ENTER(cuDeviceGet);
  if (simcuda::device_of(ordinal) == nullptr) return kInvalidDevice;
  *device = ordinal;
  return kSuccess;
}

SIMCUDA_API cuDeviceGetName(char* name, int bytes, int device) {
  ENTER(cuDeviceGetName);
  if (simcuda::device_of(device) == nullptr) return kInvalidDevice;
  return fill(name, bytes, "Simulated GPU");
}

SIMCUDA_API cuDeviceGetUuid_v2(char* uuid, int device) {
  ENTER(cuDeviceGetUuid_v2);
  if (simcuda::device_of(device) == nullptr) return kInvalidDevice;
  std::memset(uuid, device + 1, 16);
  return kSuccess;
}

SIMCUDA_API cuDeviceGetPCIBusId(char* id, int bytes, int device) {
  ENTER(cuDeviceGetPCIBusId);
  if (simcuda::device_of(device) == nullptr) return kInvalidDevice;
  char text[16];
  std::snprintf(text, sizeof text, "0000:%02x:00.0", static_cast<unsigned>(device) & 0xFF);
  return fill(id, bytes, text);
}

SIMCUDA_API cuDeviceTotalMem_v2(std::size_t* bytes, int device) {
  ENTER(cuDeviceTotalMem_v2);
  if (simcuda::device_of(device) == nullptr) return kInvalidDevice;
  *bytes = std::size_t{16} << 30;
  return kSuccess;
}

SIMCUDA_API cuDeviceGetAttribute(int* value, int attribute, int device) {
  ENTER(cuDeviceGetAttribute);
  if (simcuda::device_of(device) == nullptr) return kInvalidDevice;
  constexpr int kMaxThreadsPerBlock = 1, kWarpSize = 10, kMultiprocessorCount = 16;
  constexpr int kUnifiedAddressing = 41, kComputeCapabilityMajor = 75;
  const std::map<int, int> values = {{kMaxThreadsPerBlock, 1024},
                                     {kWarpSize, 32},
                                     {kMultiprocessorCount, 2},
                                     {kUnifiedAddressing, 1},
                                     {kComputeCapabilityMajor, 9}};
  const auto found = values.find(attribute);
  *value = found == values.end() ? 0 : found->second;
  return kSuccess;
}

SIMCUDA_API cuDeviceCanAccessPeer(int* reaches, int device, int peer) {
  ENTER(cuDeviceCanAccessPeer);
  *reaches = device != peer ? 1 : 0;
  return kSuccess;
}

SIMCUDA_API cuDevicePrimaryCtxRetain(Context* context, int device) {
  ENTER(cuDevicePrimaryCtxRetain);
  DeviceState* const found = simcuda::device_of(device);
  if (found == nullptr) return kInvalidDevice;
  *context = handle_of(found);
  return kSuccess;
}

SIMCUDA_API cuDevicePrimaryCtxRelease_v2(int device) {
  ENTER(cuDevicePrimaryCtxRelease_v2);
  return simcuda::device_of(device) == nullptr ? kInvalidDevice : kSuccess;
}

SIMCUDA_API cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  ENTER(cuDevicePrimaryCtxGetState);
  if (simcuda::device_of(device) == nullptr) return kInvalidDevice;
  *flags = 0;
  *active = 1;
  return kSuccess;
}

SIMCUDA_API cuCtxSetCurrent(Context context) {
  ENTER(cuCtxSetCurrent);
  current() = reinterpret_cast<DeviceState*>(context);
  return kSuccess;
}

SIMCUDA_API cuCtxGetCurrent(Context* context) {
  ENTER(cuCtxGetCurrent);
  *context = handle_of(current());
  return kSuccess;
}

SIMCUDA_API cuCtxPushCurrent_v2(Context context) {
  ENTER(cuCtxPushCurrent_v2);
  current() = reinterpret_cast<DeviceState*>(context);
  return kSuccess;
}

SIMCUDA_API cuCtxPopCurrent_v2(Context* context) {
  ENTER(cuCtxPopCurrent_v2);
  if (context != nullptr) *context = handle_of(current());
  current() = nullptr;
  return kSuccess;
}

SIMCUDA_API cuCtxGetDevice(int* device) {
  ENTER(cuCtxGetDevice);
  NEED_CONTEXT();
  *device = current()->ordinal;
  return kSuccess;
}

SIMCUDA_API cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  ENTER(cuCtxGetStreamPriorityRange);
  NEED_CONTEXT();
  *least = 0;
  *greatest = -5;
  return kSuccess;
}

SIMCUDA_API cuCtxSynchronize() {
  ENTER(cuCtxSynchronize);
  NEED_CONTEXT();
  simcuda::Streams::instance().drain(current());
  return kSuccess;
}

// For tests, beside the driver's own functions.

extern "C" __attribute__((visibility("default"))) unsigned simcuda_races() {
  return simcuda::session().races;
}

extern "C" __attribute__((visibility("default"))) unsigned long simcuda_calls_of(long thread) {
  simcuda::CallCounts& counts = simcuda::call_counts();
  const std::lock_guard lock(counts.mutex);
  const auto found = counts.threads.find(thread);
  return found == counts.threads.end() ? 0 : found->second;
}

extern "C" __attribute__((visibility("default"))) void simcuda_counts(simcuda::Counts* counts) {
  using Kind = simcuda::Block::Kind;
  const auto blocks = [](Kind kind) {
    return static_cast<unsigned>(simcuda::Memory::instance().count(kind));
  };
  *counts = {.device = blocks(Kind::kDevice),
             .imported = blocks(Kind::kImported),
             .pinned = blocks(Kind::kPinned),
             .registered = blocks(Kind::kRegistered),
             .streams = static_cast<unsigned>(simcuda::Streams::instance().count()),
             .events = simcuda::living_events()};
}
