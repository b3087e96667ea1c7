// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
// Memory of the device and of the host, copies, and memory of other processes.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "simcuda/calls.hpp"
#include "simcuda/settings.hpp"

using namespace farandole::cuda;
using simcuda::Accessor;
using simcuda::Block;
using simcuda::current;
using simcuda::IpcHandle;
using simcuda::Memory;
using simcuda::Streams;
using simcuda::StreamState;
using simcuda::VectorClock;

namespace {

const void* pointer_of(Address address) {
  return reinterpret_cast<const void*>(address);
}

Address address_of(const void* pointer) {
  return reinterpret_cast<Address>(pointer);
}

/// Waits for all streams, as the programming guide says of calls that allocate and free.
void wait_for_all() {
  Streams::instance().drain(current());
}

/// Whether it is host memory that is not locked in place, which a copy does not leave before the
/// host may go on.
bool is_pageable(Address address) {
  return !Memory::instance().find(pointer_of(address));
}

Status copy(Address to, Address from, std::size_t bytes, Stream stream) {
  NEED_CONTEXT();
  StreamState* const found = Streams::instance().of(stream, current());
  if (found == nullptr) return kInvalidHandle;
  if (found->capturing) return kCaptureUnsupported;
  if (bytes == 0) return kSuccess;
  Streams::instance().enqueue(*found, "copy", [=](VectorClock&, const Accessor& who) {
    std::byte* const source = Memory::instance().touch(who, pointer_of(from), bytes, false);
    std::byte* const target = Memory::instance().touch(who, pointer_of(to), bytes, true);
    const bool apart = target + bytes <= source || source + bytes <= target;
    if (apart) std::memset(target, 0xDB, bytes);  // who looks before it is done sees this
    if (simcuda::settings().delay_us > 0) ::usleep(who.number * 7919 % 61);
    std::memmove(target, source, bytes);
  });
  if (is_pageable(to) || is_pageable(from)) Streams::instance().drain(*found);
  return kSuccess;
}

Status copy_and_wait(Address to, Address from, std::size_t bytes) {
  if (const Status status = copy(to, from, bytes, nullptr); status != kSuccess) return status;
  Streams::instance().drain(*Streams::instance().of(nullptr, current()));
  return kSuccess;
}

}  // namespace

SIMCUDA_API cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  ENTER(cuMemGetInfo_v2);
  *free = *total = std::size_t{16} << 30;
  return kSuccess;
}

SIMCUDA_API cuMemAlloc_v2(Address* address, std::size_t bytes) {
  ENTER(cuMemAlloc_v2);
  NEED_CONTEXT();
  if (bytes == 0) return kInvalidValue;
  wait_for_all();
  const auto* const made =
      Memory::instance().allocate(bytes, current()->ordinal, simcuda::settings().ipc);
  *address = address_of(made);
  return made == nullptr ? kOutOfMemory : kSuccess;
}

SIMCUDA_API cuMemFree_v2(Address address) {
  ENTER(cuMemFree_v2);
  NEED_CONTEXT();
  if (address == 0) return kSuccess;
  wait_for_all();
  const bool there = Memory::instance().release(pointer_of(address), Block::Kind::kDevice);
  return there ? kSuccess : kInvalidValue;
}

// Memory of a pool, which other processes cannot open. Nobody waits.
SIMCUDA_API cuMemAllocAsync(Address* address, std::size_t bytes, Stream stream) {
  ENTER(cuMemAllocAsync);
  NEED_CONTEXT();
  StreamState* const found = Streams::instance().of(stream, current());
  if (found == nullptr) return kInvalidHandle;
  const auto* const made = Memory::instance().allocate(bytes, current()->ordinal, false);
  if (made == nullptr) return kOutOfMemory;
  *address = address_of(made);
  Streams::instance().enqueue(*found, "allocation", [=](VectorClock&, const Accessor& who) {
    Memory::instance().touch(who, made, bytes, true);
  });
  return kSuccess;
}

SIMCUDA_API cuMemFreeAsync(Address address, Stream stream) {
  ENTER(cuMemFreeAsync);
  NEED_CONTEXT();
  StreamState* const found = Streams::instance().of(stream, current());
  const auto block = Memory::instance().find(pointer_of(address));
  if (found == nullptr || !block || block->kind != Block::Kind::kDevice) return kInvalidValue;
  Streams::instance().enqueue(*found, "free", [block](VectorClock&, const Accessor& who) {
    Memory::instance().touch(who, block->begin, block->bytes, true);
    Memory::instance().release(block->begin, Block::Kind::kDevice);
  });
  return kSuccess;
}

SIMCUDA_API cuMemGetAddressRange_v2(Address* base, std::size_t* bytes, Address address) {
  ENTER(cuMemGetAddressRange_v2);
  const auto block = Memory::instance().find(pointer_of(address));
  if (!block || !block->on_device()) return kNotFound;
  if (base != nullptr) *base = address_of(block->begin);
  if (bytes != nullptr) *bytes = block->bytes;
  return kSuccess;
}

namespace {

/// False if there is no such attribute.
bool read_attribute(PointerAttribute attribute, const Block* block, Address address, void* value) {
  constexpr int kContext = 1, kDevicePointer = 3, kHostPointer = 4, kBufferId = 7;
  constexpr int kIsManaged = 8, kIsIpcCapable = 10;
  const bool on_device = block != nullptr && block->on_device();
  switch (static_cast<int>(attribute)) {
    case kMemoryType:
      *static_cast<unsigned*>(value) = block == nullptr ? 0
                                       : on_device      ? kDeviceMemory
                                                        : kHostMemory;
      return true;
    case kBufferId:
      *static_cast<std::uint64_t*>(value) = block == nullptr ? 0 : block->id;
      return true;
    case kIsManaged:
      *static_cast<unsigned*>(value) = 0;
      return true;
    case kDeviceOrdinal:
      *static_cast<int*>(value) = block == nullptr ? -2 : block->ordinal;
      return true;
    case kIsIpcCapable:
      *static_cast<int*>(value) = block != nullptr && block->ipc ? 1 : 0;
      return true;
    case kContext:
      *static_cast<void**>(value) = block == nullptr ? nullptr : simcuda::device_of(block->ordinal);
      return true;
    case kDevicePointer:
      *static_cast<Address*>(value) = address;
      return true;
    case kHostPointer:
      *static_cast<const void**>(value) = on_device ? nullptr : pointer_of(address);
      return true;
    default:
      return false;
  }
}

}  // namespace

SIMCUDA_API cuPointerGetAttribute(void* value, PointerAttribute attribute, Address address) {
  ENTER(cuPointerGetAttribute);
  const auto block = Memory::instance().find(pointer_of(address));
  if (!block) return kInvalidValue;  // as the driver says of memory that it does not know
  return read_attribute(attribute, &*block, address, value) ? kSuccess : kNotSupported;
}

SIMCUDA_API cuPointerGetAttributes(unsigned count, PointerAttribute* attributes, void** values,
                                   Address address) {
  ENTER(cuPointerGetAttributes);
  const auto block = Memory::instance().find(pointer_of(address));
  for (unsigned i = 0; i < count; ++i) {
    if (!read_attribute(attributes[i], block ? &*block : nullptr, address, values[i])) {
      return kNotSupported;
    }
  }
  return kSuccess;
}

SIMCUDA_API cuMemHostAlloc(void** memory, std::size_t bytes, unsigned) {
  ENTER(cuMemHostAlloc);
  NEED_CONTEXT();
  if (bytes == 0) return kInvalidValue;
  wait_for_all();
  *memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (*memory == MAP_FAILED) return kOutOfMemory;
  Memory::instance().pin(*memory, bytes, Block::Kind::kPinned);
  return kSuccess;
}

SIMCUDA_API cuMemAllocHost_v2(void** memory, std::size_t bytes) {
  return cuMemHostAlloc(memory, bytes, 0);
}

SIMCUDA_API cuMemFreeHost(void* memory) {
  ENTER(cuMemFreeHost);
  wait_for_all();
  return Memory::instance().release(memory, Block::Kind::kPinned) ? kSuccess : kInvalidValue;
}

SIMCUDA_API cuMemHostRegister_v2(void* memory, std::size_t bytes, unsigned) {
  ENTER(cuMemHostRegister_v2);
  NEED_CONTEXT();
  wait_for_all();
  const bool pinned = Memory::instance().pin(memory, bytes, Block::Kind::kRegistered) != nullptr;
  return pinned ? kSuccess : kAlreadyRegistered;
}

SIMCUDA_API cuMemHostUnregister(void* memory) {
  ENTER(cuMemHostUnregister);
  wait_for_all();
  const bool there = Memory::instance().release(memory, Block::Kind::kRegistered);
  return there ? kSuccess : kNotRegistered;
}

SIMCUDA_API cuMemHostGetDevicePointer_v2(Address* address, void* memory, unsigned) {
  ENTER(cuMemHostGetDevicePointer_v2);
  if (!Memory::instance().find(memory)) return kInvalidValue;
  *address = address_of(memory);
  return kSuccess;
}

SIMCUDA_API cuMemcpyAsync(Address to, Address from, std::size_t bytes, Stream stream) {
  ENTER(cuMemcpyAsync);
  return copy(to, from, bytes, stream);
}

SIMCUDA_API cuMemcpy2DAsync_v2(const Copy2d* rows, Stream stream) {
  ENTER(cuMemcpy2DAsync_v2);
  NEED_CONTEXT();
  if (rows->from_type != kUnifiedMemory || rows->to_type != kUnifiedMemory) return kInvalidValue;
  if (rows->bytes > rows->from_pitch || rows->bytes > rows->to_pitch) return kInvalidValue;
  for (std::size_t row = 0; row < rows->rows; ++row) {
    const Address to = rows->to + (rows->to_y + row) * rows->to_pitch + rows->to_x;
    const Address from = rows->from + (rows->from_y + row) * rows->from_pitch + rows->from_x;
    if (const Status status = copy(to, from, rows->bytes, stream); status != kSuccess) {
      return status;
    }
  }
  return kSuccess;
}

SIMCUDA_API cuMemcpyDtoHAsync_v2(void* to, Address from, std::size_t bytes, Stream stream) {
  ENTER(cuMemcpyDtoHAsync_v2);
  return copy(address_of(to), from, bytes, stream);
}

SIMCUDA_API cuMemcpyHtoDAsync_v2(Address to, const void* from, std::size_t bytes, Stream stream) {
  ENTER(cuMemcpyHtoDAsync_v2);
  return copy(to, address_of(from), bytes, stream);
}

SIMCUDA_API cuMemcpyDtoDAsync_v2(Address to, Address from, std::size_t bytes, Stream stream) {
  ENTER(cuMemcpyDtoDAsync_v2);
  return copy(to, from, bytes, stream);
}

SIMCUDA_API cuMemcpyHtoD_v2(Address to, const void* from, std::size_t bytes) {
  ENTER(cuMemcpyHtoD_v2);
  return copy_and_wait(to, address_of(from), bytes);
}

SIMCUDA_API cuMemcpyDtoH_v2(void* to, Address from, std::size_t bytes) {
  ENTER(cuMemcpyDtoH_v2);
  return copy_and_wait(address_of(to), from, bytes);
}

SIMCUDA_API cuMemsetD8Async(Address to, unsigned char value, std::size_t bytes, Stream stream) {
  ENTER(cuMemsetD8Async);
  NEED_CONTEXT();
  StreamState* const found = Streams::instance().of(stream, current());
  if (found == nullptr) return kInvalidHandle;
  if (found->capturing) return kCaptureUnsupported;
  Streams::instance().enqueue(*found, "memset", [=](VectorClock&, const Accessor& who) {
    std::memset(Memory::instance().touch(who, pointer_of(to), bytes, true), value, bytes);
  });
  return kSuccess;
}

SIMCUDA_API cuIpcGetMemHandle(IpcHandle* handle, Address address) {
  ENTER(cuIpcGetMemHandle);
  const auto block = Memory::instance().find(pointer_of(address));
  if (!block || block->kind != Block::Kind::kDevice || !block->ipc) return kInvalidValue;
  std::memset(handle, 0, sizeof *handle);
  std::snprintf(handle->bytes, sizeof handle->bytes, "%d %d %zu %d", ::getpid(), block->fd,
                block->bytes, block->ordinal);
  return kSuccess;
}

SIMCUDA_API cuIpcOpenMemHandle_v2(Address* address, IpcHandle handle, unsigned) {
  ENTER(cuIpcOpenMemHandle_v2);
  NEED_CONTEXT();
  int pid = 0, fd = 0, ordinal = 0;
  std::size_t bytes = 0;
  if (std::sscanf(handle.bytes, "%d %d %zu %d", &pid, &fd, &bytes, &ordinal) != 4) {
    return kInvalidValue;
  }
  if (pid == ::getpid()) return kInvalidContext;  // as the driver says of a process's own memory
  const auto* const opened = Memory::instance().import(pid, fd, bytes, ordinal);
  *address = address_of(opened);
  return opened == nullptr ? kInvalidValue : kSuccess;
}

SIMCUDA_API cuIpcCloseMemHandle(Address address) {
  ENTER(cuIpcCloseMemHandle);
  wait_for_all();
  const bool there = Memory::instance().release(pointer_of(address), Block::Kind::kImported);
  return there ? kSuccess : kInvalidValue;
}
