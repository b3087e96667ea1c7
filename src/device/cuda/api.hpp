// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

// The part of CUDA's driver interface that the library calls, declared here so that it builds where
// no CUDA is. Names, numbers and parameters are those of cuda.h, as the reference manual of the
// driver API gives them for CUDA 11.7 and later; each function is declared in the version that its
// symbol names.
namespace farandole::cuda {

using Address = std::uint64_t;  // of memory that the device reaches
using Context = struct ContextOfDriver*;
using Stream = struct StreamOfDriver*;
using Event = struct EventOfDriver*;

/// What a function of the driver returns.
enum Status : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidContext = 201,
  kInvalidHandle = 400,
  kNotFound = 500,
  kNotReady = 600,
  kAlreadyRegistered = 712,
  kNotRegistered = 713,
  kNotSupported = 801,
  kCaptureUnsupported = 900,
};

inline constexpr unsigned kNonBlockingStream = 1;  // not ordered with the legacy default stream
inline constexpr unsigned kEventWithoutTime = 2;
inline constexpr unsigned kHostPortable = 1, kHostMapped = 2;  // for all contexts; with an address
inline constexpr unsigned kWaitAtLeast = 0;  // cyclically: until (int32)(*address - value) >= 0

enum PointerAttribute : int {
  kMemoryType = 2,     // unsigned: kHostMemory or kDeviceMemory
  kDeviceOrdinal = 9,  // int
};
inline constexpr unsigned kHostMemory = 1, kDeviceMemory = 2;

/// Rows of bytes, from one pitch to another; fields as in cuda.h, in its order.
struct Copy2d {
  std::size_t from_x, from_y;
  unsigned from_type;
  const void* from_host;
  Address from;
  void* from_array;
  std::size_t from_pitch;
  std::size_t to_x, to_y;
  unsigned to_type;
  void* to_host;
  Address to;
  void* to_array;
  std::size_t to_pitch;
  std::size_t bytes, rows;
};
inline constexpr unsigned kUnifiedMemory = 4;  // the driver finds out which it is

enum CaptureStatus : int { kNotCapturing = 0, kCapturing = 1, kCaptureInvalidated = 2 };

/// X(member of Api, symbol, parameters)
#define CUDA_DRIVER_FUNCTIONS(X)                                                                \
  X(init, cuInit, (unsigned flags))                                                             \
  X(driver_version, cuDriverGetVersion, (int* version))                                         \
  X(error_name, cuGetErrorName, (Status status, const char** name))                             \
  X(error_text, cuGetErrorString, (Status status, const char** text))                           \
  X(device_count, cuDeviceGetCount, (int* count))                                               \
  X(device_get, cuDeviceGet, (int* device, int ordinal))                                        \
  X(device_name, cuDeviceGetName, (char* name, int bytes, int device))                          \
  X(context_retain, cuDevicePrimaryCtxRetain, (Context * context, int device))                  \
  X(context_release, cuDevicePrimaryCtxRelease_v2, (int device))                                \
  X(context_set, cuCtxSetCurrent, (Context context))                                            \
  X(context_get, cuCtxGetCurrent, (Context * context))                                          \
  X(context_priorities, cuCtxGetStreamPriorityRange, (int* least, int* greatest))               \
  X(stream_create, cuStreamCreateWithPriority, (Stream * stream, unsigned flags, int priority)) \
  X(stream_destroy, cuStreamDestroy_v2, (Stream stream))                                        \
  X(stream_synchronize, cuStreamSynchronize, (Stream stream))                                   \
  X(stream_capture, cuStreamIsCapturing, (Stream stream, CaptureStatus * status))               \
  X(stream_wait_event, cuStreamWaitEvent, (Stream stream, Event event, unsigned flags))         \
  X(stream_write_word, cuStreamWriteValue32_v2,                                                 \
    (Stream stream, Address word, std::uint32_t value, unsigned flags))                         \
  X(stream_wait_word, cuStreamWaitValue32_v2,                                                   \
    (Stream stream, Address word, std::uint32_t value, unsigned flags))                         \
  X(event_create, cuEventCreate, (Event * event, unsigned flags))                               \
  X(event_destroy, cuEventDestroy_v2, (Event event))                                            \
  X(event_record, cuEventRecord, (Event event, Stream stream))                                  \
  X(event_query, cuEventQuery, (Event event))                                                   \
  X(event_synchronize, cuEventSynchronize, (Event event))                                       \
  X(memory_copy, cuMemcpyAsync, (Address to, Address from, std::size_t bytes, Stream stream))   \
  X(memory_copy_2d, cuMemcpy2DAsync_v2, (const Copy2d* copy, Stream stream))                    \
  X(pointer_attributes, cuPointerGetAttributes,                                                 \
    (unsigned count, PointerAttribute* attributes, void** values, Address address))             \
  X(host_register, cuMemHostRegister_v2, (void* memory, std::size_t bytes, unsigned flags))     \
  X(host_unregister, cuMemHostUnregister, (void* memory))                                       \
  X(host_address, cuMemHostGetDevicePointer_v2, (Address * address, void* memory, unsigned flags))

/// A driver's functions.
struct Api {
#define CUDA_API_MEMBER(name, symbol, parameters) Status(*name) parameters = nullptr;
  CUDA_DRIVER_FUNCTIONS(CUDA_API_MEMBER)
#undef CUDA_API_MEMBER
};

}  // namespace farandole::cuda
