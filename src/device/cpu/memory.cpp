// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <new>
#include <string>

namespace farandole {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr int kCollapse = 25;  // MADV_COLLAPSE, which headers older than Linux 6.1 lack

constexpr std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// Less is of no use: two ranks need more for their pipes alone.
constexpr std::size_t kReserveMin = std::size_t{1} << 20;

Error refused(const std::string& call, std::size_t bytes, const MemoryLimits& limits) {
  return Error{ErrorKind::kInternal, call + " refused to reserve " + std::to_string(bytes) +
                                         " bytes of library memory: " + std::strerror(errno) +
                                         ". FARANDOLE_MEMORY sets how much is reserved" +
                                         limits.text() + "."};
}

/// How many bytes to reserve.
std::size_t affordable(std::size_t wished, const MemoryLimits& limits) {
  std::size_t bytes = std::min(wished, limits.file / kPage * kPage);
  if (!limits.holds(bytes)) bytes = std::min(bytes, limits.share(1));
  return std::max(bytes, std::min(wished, kReserveMin));
}

}  // namespace

Memory::Memory(int fd, std::byte* base, Bytes reserved, Bytes wished, const MemoryLimits& limits)
    : fd_(fd),
      base_(base),
      file_bytes_(reserved),
      wished_(wished),
      limits_(limits),
      reserved_(reserved),
      huge_(reserved.value() / kHugePage + 1) {
  free_.add(kHeaderBytes, reserved.value() - kHeaderBytes);
}

Memory::~Memory() {
  ::munmap(base_, reserved_.value());
  ::close(fd_);
}

Result<std::unique_ptr<Memory>> Memory::create(Bytes reserve) {
  const std::size_t wished = round_up(reserve.value(), kPage);
  if (wished < 2 * kPage || wished < reserve.value()) {
    return Error{ErrorKind::kInvalidArgument, "Library memory of " +
                                                  std::to_string(reserve.value()) +
                                                  " bytes was asked for; allowed is two pages "
                                                  "and more."};
  }
  const MemoryLimits limits = MemoryLimits::now();
  std::size_t bytes = affordable(wished, limits);
  const int fd = ::memfd_create("farandole", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return refused("memfd_create", bytes, limits);
  std::byte* base = map(fd, Bytes{bytes});
  while (base == nullptr && bytes / 2 >= kReserveMin) {
    bytes = bytes / 2 / kPage * kPage;
    base = map(fd, Bytes{bytes});
  }
  // The seals promise peers that the file they have mapped never shrinks. Making the file longer
  // than the limit would end this process by a signal.
  const bool sized = base != nullptr && bytes <= limits.file &&
                     ::ftruncate(fd, static_cast<off_t>(bytes)) == 0 &&
                     ::fcntl(fd, F_ADD_SEALS, kSizeSeals) == 0;
  if (sized) {
    return std::unique_ptr<Memory>(new Memory(fd, base, Bytes{bytes}, Bytes{wished}, limits));
  }
  if (bytes > limits.file) errno = EFBIG;
  Error error = refused(base == nullptr ? "mmap" : "ftruncate", bytes, limits);
  if (base != nullptr) ::munmap(base, bytes);
  ::close(fd);
  return error;
}

void Memory::shrink(Bytes reserve) {
  std::scoped_lock lock(mutex_);
  assert(allocated_.empty() && "shrunk while in use");
  const std::size_t bytes = std::max(reserve.value() / kPage * kPage, 2 * kPage);
  if (bytes >= reserved_.value()) return;
  ::munmap(base_ + bytes, reserved_.value() - bytes);
  free_.remove(bytes, reserved_.value() - bytes);
  reserved_ = Bytes{bytes};
}

// The system may map a file at an address that is not aligned, so this first looks for a larger
// free range, which contains an aligned one.
std::byte* Memory::map(int fd, Bytes bytes) {
  const std::size_t more = bytes.value() + kHugePage;
  void* const place = ::mmap(nullptr, more, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  void* wished = nullptr;
  if (place != MAP_FAILED) {
    wished = reinterpret_cast<void*>(round_up(reinterpret_cast<std::uintptr_t>(place), kHugePage));
    ::munmap(place, more);
  }
  void* const base =
      ::mmap(wished, bytes.value(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (base == MAP_FAILED) return nullptr;
  // Gigabytes of gradients are of no use in a core dump, and writing them takes so long that peers
  // learn late that this process died.
  ::madvise(base, bytes.value(), MADV_DONTDUMP);
  return static_cast<std::byte*>(base);
}

Result<std::byte*> Memory::allocate(Bytes size, Touch touch) {
  const std::size_t unit = size.value() < kPage ? kAlignment : kPage;
  const std::size_t bytes = round_up(std::max<std::size_t>(size.value(), 1), unit);
  std::vector<Intervals::Interval> smalls;
  std::byte* block = nullptr;
  {
    std::scoped_lock lock(mutex_);
    if (bytes >= kHugePage) block = take(bytes, kHugePage);
    if (block == nullptr && bytes >= size.value()) block = take(bytes, unit);
    if (block == nullptr) return exhausted(size);
    if (touch == Touch::kAll) smalls = claim_huge_pages(block, bytes);
  }
  for (const auto& [offset, length] : smalls) use_huge_pages(base_ + offset, Bytes{length});
  return block;
}

std::byte* Memory::take(std::size_t bytes, std::size_t alignment) {
  for (const auto& [offset, length] : free_.map()) {
    const std::size_t start = round_up(offset, alignment);
    const std::size_t skipped = start - offset;
    if (skipped > length || bytes > length - skipped) continue;
    free_.remove(start, bytes);
    warm_.remove(start, bytes);
    allocated_.emplace(start, bytes);
    return base_ + start;
  }
  return nullptr;
}

Error Memory::exhausted(Bytes size) const {
  return Error{ErrorKind::kInvalidArgument,
               "Library memory has no block of " + std::to_string(size.value()) +
                   " bytes left: " + std::to_string(free_.total_bytes()) + " of " +
                   std::to_string(reserved_.value()) +
                   " bytes are free. FARANDOLE_MEMORY sets how much is reserved" +
                   (reserved_ < wished_ ? ", now " + std::to_string(wished_.value()) +
                                              " bytes per rank" + limits_.text()
                                        : "") +
                   "."};
}

// Each huge page is asked for once, whether the system gives it or not: the call involves all
// cores.
std::vector<Intervals::Interval> Memory::claim_huge_pages(const std::byte* block,
                                                          std::size_t bytes) {
  const auto offset = static_cast<std::size_t>(block - base_);
  std::vector<Intervals::Interval> smalls;
  for (std::size_t page = round_up(offset, kHugePage) / kHugePage;
       (page + 1) * kHugePage <= offset + bytes; ++page) {
    if (huge_[page]) continue;
    huge_[page] = true;
    if (!smalls.empty() && smalls.back().offset + smalls.back().bytes == page * kHugePage) {
      smalls.back().bytes += kHugePage;
    } else {
      smalls.push_back({page * kHugePage, kHugePage});
    }
  }
  return smalls;
}

void Memory::use_huge_pages(std::byte* block, Bytes size) {
  // The call skips parts in which nothing has been touched.
  for (std::size_t at = 0; at < size.value(); at += kHugePage) {
    static_cast<void>(*static_cast<volatile std::byte*>(block + at));
  }
  ::madvise(block, size.value(), kCollapse);
}

void Memory::release(std::byte* block) {
  if (block == nullptr || !origin_.here()) return;
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
  if (done != 0) return;
  warm_.remove(first, end - first);
  for (std::size_t page = first / kHugePage; page * kHugePage < end; ++page) huge_[page] = false;
}

std::optional<Bytes> Memory::offset_of(const std::byte* data, Bytes size) const {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  const auto base = reinterpret_cast<std::uintptr_t>(base_);
  if (address < base) return std::nullopt;
  const std::size_t offset = address - base;
  if (offset > reserved_.value() || size.value() > reserved_.value() - offset) return std::nullopt;
  return Bytes{offset};
}

Result<std::shared_ptr<std::byte>> allocate_shared(const std::shared_ptr<Memory>& memory,
                                                   Bytes size) {
  auto block = memory->allocate(size, Memory::Touch::kAll);
  if (!block) return block.error();
  return std::shared_ptr<std::byte>(*block, [memory](std::byte* data) { memory->release(data); });
}

Result<std::shared_ptr<std::byte>> allocate_anywhere(const std::shared_ptr<Memory>& memory,
                                                     Bytes size) {
  if (auto shared = allocate_shared(memory, size); shared) return shared;
  auto* const own = new (std::nothrow) std::byte[size.value()];
  if (own != nullptr) return std::shared_ptr<std::byte>(own, std::default_delete<std::byte[]>());
  return Error{ErrorKind::kInternal,
               "The system has no " + std::to_string(size.value()) + " bytes of memory left."};
}

}  // namespace farandole
