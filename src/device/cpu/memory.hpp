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

/// The library-owned memory of one process: one sparse region, allocated from as needed.
///
/// On a host it is an anonymous file (memfd) that peers map once as a whole, so that any buffer
/// in it is an offset to them and nothing has a name that could be left behind. Pages exist once
/// touched, or at once for blocks that will be. Up to kWarmBytes of released memory keep their
/// pages for the next allocation; the pages of what is released beyond that go back to the system.
/// Threads   allocate() and release() from any thread.
/// Errors    kInvalidArgument when the region is exhausted, kInternal when the system refuses.
class Memory {
 public:
  /// Reserves `reserve` bytes of address space, or what this process's limits leave: of a limit on
  /// address space half, since the program and its peers' memories need room too. The first page,
  /// header(), is the transport's.
  static Result<std::unique_ptr<Memory>> create(Bytes reserve);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  /// What is going to be touched of a block, as far as one knows.
  enum class Touch : std::uint8_t { kSome, kAll };
  /// At least `size` bytes, aligned to 64, to a page from one page on, and to kHugePage from there
  /// on while that leaves room; zero on first use only. Of a block that is touched as a whole the
  /// parts that can have huge pages have them at once, if the system knows how and has any.
  Result<std::byte*> allocate(Bytes size, Touch touch = Touch::kSome);
  /// Nothing in a forked child: the parent still uses the block, whose pages both map.
  void release(std::byte* block);

  /// Gives address space back, until `reserve` bytes are left; before the first allocate().
  void shrink(Bytes reserve);

  /// Gives [block, block + size), multiples of kHugePage, huge pages: reading takes two thirds of
  /// the time, and coming to be no longer than faults for every small page would. Linux 6.1 and
  /// later, which need no setting for it; else nothing happens.
  static void use_huge_pages(std::byte* block, Bytes size);
  /// The file as every process maps it, at a multiple of kHugePage if there is room; null if the
  /// system refuses, and then errno says why. A core dump leaves it out.
  static std::byte* map(int fd, Bytes bytes);

  /// Offset of [data, data + size) if it lies inside, else nothing.
  std::optional<Bytes> offset_of(const std::byte* data, Bytes size) const;
  std::byte* base() const { return base_; }
  std::byte* header() const { return base_; }
  Bytes reserved() const { return reserved_; }
  int fd() const { return fd_; }
  /// Length of the file, which stays.
  Bytes file_bytes() const { return file_bytes_; }
  /// Address space that was left to this process without this memory.
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
  const MemoryLimits limits_;  // before
  Bytes reserved_;
  std::mutex mutex_;
  Intervals free_;
  Intervals warm_;                                // the part of free_ that may have pages
  std::vector<bool> huge_;                        // by kHugePage: has been asked for
  std::map<std::size_t, std::size_t> allocated_;  // offset -> bytes
};

/// A block to be touched as a whole, which its last owner releases; owners keep the memory. Errors
/// as of Memory::allocate().
Result<std::shared_ptr<std::byte>> allocate_shared(const std::shared_ptr<Memory>& memory,
                                                   Bytes size);

/// The same, or memory of this process alone where the library's has no room: peers reach it as
/// they reach what a caller gives.
/// Errors    kInternal if the system has none either.
Result<std::shared_ptr<std::byte>> allocate_anywhere(const std::shared_ptr<Memory>& memory,
                                                     Bytes size);

}  // namespace farandole
