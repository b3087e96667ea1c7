// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

namespace farandole {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kLine = 64;

constexpr std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

Error refused(const std::string& call, std::size_t bytes) {
  return Error{ErrorKind::kInternal, call + " refused to reserve " + std::to_string(bytes) +
                                         " bytes of library memory: " + std::strerror(errno) + "."};
}

}  // namespace

Memory::Memory(int fd, std::byte* base, Bytes reserved)
    : fd_(fd), base_(base), reserved_(reserved) {
  free_.add(kHeaderBytes, reserved.value() - kHeaderBytes);
}

Memory::~Memory() {
  ::munmap(base_, reserved_.value());
  ::close(fd_);
}

Result<std::unique_ptr<Memory>> Memory::create(Bytes reserve) {
  const std::size_t bytes = round_up(reserve.value(), kPage);
  if (bytes < 2 * kPage || bytes < reserve.value()) {
    return Error{ErrorKind::kInvalidArgument, "Library memory of " +
                                                  std::to_string(reserve.value()) +
                                                  " bytes was asked for; allowed is two pages "
                                                  "and more."};
  }
  const int fd = ::memfd_create("farandole", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return refused("memfd_create", bytes);
  // The seals promise to peers that what they have mapped never shrinks under them.
  if (::ftruncate(fd, static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(fd, F_ADD_SEALS, kSizeSeals) != 0) {
    Error error = refused("ftruncate", bytes);
    ::close(fd);
    return error;
  }
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (base == MAP_FAILED) {
    Error error = refused("mmap", bytes);
    ::close(fd);
    return error;
  }
  return std::unique_ptr<Memory>(new Memory(fd, static_cast<std::byte*>(base), Bytes{bytes}));
}

Result<std::byte*> Memory::allocate(Bytes size) {
  const std::size_t unit = size.value() < kPage ? kLine : kPage;
  const std::size_t bytes = round_up(std::max<std::size_t>(size.value(), 1), unit);
  std::scoped_lock lock(mutex_);
  for (const auto& [offset, length] : free_.map()) {
    const std::size_t start = round_up(offset, unit);
    const std::size_t skipped = start - offset;
    if (bytes < size.value() || skipped > length || bytes > length - skipped) continue;
    free_.remove(start, bytes);
    warm_.remove(start, bytes);
    allocated_.emplace(start, bytes);
    return base_ + start;
  }
  return Error{ErrorKind::kInvalidArgument,
               "Library memory has no block of " + std::to_string(size.value()) +
                   " bytes left: " + std::to_string(free_.total_bytes()) + " of " +
                   std::to_string(reserved_.value()) +
                   " bytes are free. FARANDOLE_MEMORY sets how much is reserved."};
}

void Memory::release(std::byte* block) {
  if (block == nullptr) return;
  std::scoped_lock lock(mutex_);
  const auto found = allocated_.find(static_cast<std::size_t>(block - base_));
  assert(found != allocated_.end() && "released a block that is not allocated");
  if (found == allocated_.end()) return;
  const auto [offset, bytes] = *found;
  allocated_.erase(found);
  free_.add(offset, bytes);
  const Intervals::Interval warm = warm_.add(offset, bytes);
  if (warm_.total_bytes() > kWarmBytes) give_back_pages(warm);
}

void Memory::give_back_pages(Intervals::Interval released) {
  constexpr std::size_t kWorthwhile = std::size_t{1} << 20;
  const std::size_t first = round_up(released.offset, kPage);
  const std::size_t end = (released.offset + released.bytes) / kPage * kPage;
  if (end < first + kWorthwhile) return;
  const int done = ::fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                               static_cast<off_t>(first), static_cast<off_t>(end - first));
  if (done == 0) warm_.remove(first, end - first);
}

std::optional<Bytes> Memory::offset_of(const std::byte* data, Bytes size) const {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  const auto base = reinterpret_cast<std::uintptr_t>(base_);
  if (address < base) return std::nullopt;
  const std::size_t offset = address - base;
  if (offset > reserved_.value() || size.value() > reserved_.value() - offset) return std::nullopt;
  return Bytes{offset};
}

}  // namespace farandole
