// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/origin.hpp"
#include "device/cpu/intervals.hpp"
#include "device/cpu/memory_limits.hpp"
#include "farandole/result.hpp"
#include "farandole/types.hpp"

namespace farandole {

/// The library-owned memory of one process: one sparse region from which blocks are allocated.
///
/// On a host it is an anonymous file (memfd) that peers map once as a whole, so that they address
/// any buffer in it by its offset, and there is no name that could be left behind. Pages exist once
/// they are touched; blocks of Touch::kAll get huge pages at once. Up to kWarmBytes of released
/// memory keep their pages for later allocations; the pages of memory that is released beyond that
/// return to the system.
///
/// Threads   allocate() and release() from any thread.
/// Errors    kInvalidArgument when the region is exhausted, kInternal when the system refuses.
class Memory {
 public:
  /// Reserves `reserve` bytes of address space, or less if the limits of this process require it:
  /// half of what a limit on address space leaves, since the program and the peers' memories need
  /// room too. The first page, header(), belongs to the transport.
  static Result<std::unique_ptr<Memory>> create(Bytes reserve);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  /// How much of a block is going to be touched, as far as the caller knows.
  enum class Touch : std::uint8_t { kSome, kAll };
  /// A block of at least `size` bytes; zero on first use only. Aligned to 64 bytes, from one page
  /// on to a page, and from kHugePage on to kHugePage while there is room for that. With
  /// Touch::kAll, the parts that can have huge pages get them at once, if the system supports that
  /// and has any.
  Result<std::byte*> allocate(Bytes size, Touch touch = Touch::kSome);
  /// Does nothing in a forked child: the parent still uses the block, whose pages both map.
  void release(std::byte* block);

  /// Gives address space back until `reserve` bytes are left. Only before the first allocate().
  void shrink(Bytes reserve);

  /// Gives [block, block + size), multiples of kHugePage, huge pages: reading then takes two thirds
  /// of the time, and making them takes no longer than the faults for every small page would. Needs
  /// Linux 6.1 or later, and no setting there; else nothing happens.
  static void use_huge_pages(std::byte* block, Bytes size);
  /// Maps the file, in any process, at a multiple of kHugePage if there is room. Null if the system
  /// refuses; then errno says why. Core dumps leave the mapping out.
  static std::byte* map(int fd, Bytes bytes);

  /// Offset of [data, data + size) if it lies inside, else nothing.
  std::optional<Bytes> offset_of(const std::byte* data, Bytes size) const;
  std::byte* base() const { return base_; }
  std::byte* header() const { return base_; }
  Bytes reserved() const { return reserved_; }
  int fd() const { return fd_; }
  /// Length of the file, which shrink() does not change.
  Bytes file_bytes() const { return file_bytes_; }
  /// Address space that was left to this process before this memory was made.
  Bytes room() const { return Bytes{limits_.room()}; }
  static constexpr std::size_t kHeaderBytes = 4096;
  static constexpr std::size_t kHugePage = std::size_t{2} << 20;
  static constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  static constexpr std::size_t kWarmBytes = std::size_t{64} << 20;

 private:
  Memory(int fd, std::byte* base, Bytes reserved, Bytes wished, const MemoryLimits& limits);
  std::byte* take(std::size_t bytes, std::size_t alignment);
  Error exhausted(Bytes size) const;
  std::vector<Intervals::Interval> claim_huge_pages(const std::byte* block, std::size_t bytes);
  void give_back_pages(Intervals::Interval released);
  const Origin origin_;
  const int fd_;
  std::byte* const base_;
  const Bytes file_bytes_, wished_;
  const MemoryLimits limits_;  // before this memory was made
  Bytes reserved_;
  std::mutex mutex_;
  Intervals free_;
  Intervals warm_;                                // the part of free_ that may have pages
  std::vector<bool> huge_;                        // by kHugePage: whether it was asked for
  std::map<std::size_t, std::size_t> allocated_;  // offset -> bytes
};

/// A block to be touched as a whole. Its last owner releases it; owners keep the memory alive.
///
/// Errors    as Memory::allocate().
Result<std::shared_ptr<std::byte>> allocate_shared(const std::shared_ptr<Memory>& memory,
                                                   Bytes size);

/// The same, or memory of this process alone if library memory has no room: peers reach that in the
/// same way as a caller's buffer.
///
/// Errors    kInternal if the system has none either.
Result<std::shared_ptr<std::byte>> allocate_anywhere(const std::shared_ptr<Memory>& memory,
                                                     Bytes size);

}  // namespace farandole
