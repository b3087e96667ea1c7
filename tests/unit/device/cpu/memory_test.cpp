// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/memory.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "unit/device/cpu/huge_pages.hpp"

namespace farandole {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

std::unique_ptr<Memory> make(std::size_t bytes) {
  auto memory = Memory::create(Bytes{bytes});
  EXPECT_TRUE(memory) << (memory ? "" : memory.error().message);
  return *std::move(memory);
}

std::byte* allocate(Memory& memory, std::size_t bytes) {
  auto block = memory.allocate(Bytes{bytes});
  EXPECT_TRUE(block) << (block ? "" : block.error().message);
  return block ? *block : nullptr;
}

/// Bytes of the region that have pages.
std::size_t resident(const Memory& memory) {
  struct stat status{};
  EXPECT_EQ(::fstat(memory.fd(), &status), 0);
  return static_cast<std::size_t>(status.st_blocks) * 512;
}

// Goal: blocks are aligned, lie inside, never overlap each other or the header.
// Method: random allocations and releases; each block is filled and checked before its release.
TEST(Memory, BlocksNeverOverlap) {
  const auto memory = make(8 * kMiB);
  std::mt19937 random(1);
  std::map<std::byte*, std::pair<std::size_t, int>> live;
  const auto release = [&](auto it) {
    const auto [bytes, value] = it->second;
    for (std::size_t i = 0; i < bytes; ++i) {
      ASSERT_EQ(it->first[i], static_cast<std::byte>(value));
    }
    memory->release(it->first);
    live.erase(it);
  };
  for (int step = 0; step < 3000; ++step) {
    const std::size_t bytes = random() % (std::size_t{1} << (random() % 17));
    if (live.size() > 40) {
      release(std::next(live.begin(), static_cast<std::ptrdiff_t>(random() % live.size())));
    }
    std::byte* block = allocate(*memory, bytes);
    ASSERT_NE(block, nullptr);
    const auto address = reinterpret_cast<std::uintptr_t>(block);
    EXPECT_EQ(address % (bytes < 4096 ? 64 : 4096), 0u);
    const auto offset = memory->offset_of(block, Bytes{bytes});
    ASSERT_TRUE(offset);
    EXPECT_GE(offset->value(), Memory::kHeaderBytes);
    std::memset(block, step & 0xff, bytes);
    live[block] = {bytes, step & 0xff};
  }
  while (!live.empty()) release(live.begin());
  EXPECT_NE(allocate(*memory, 8 * kMiB - Memory::kHeaderBytes), nullptr) << "not coalesced";
}

// Goal: an exhausted region says so and recovers.
// Method: take all of it, ask for more, give it back; also sizes that overflow.
TEST(Memory, ExhaustionIsAnError) {
  const auto memory = make(kMiB);
  std::byte* all = allocate(*memory, kMiB - Memory::kHeaderBytes);
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{4096}, ~std::size_t{0}}) {
    const auto more = memory->allocate(Bytes{bytes});
    ASSERT_FALSE(more);
    EXPECT_EQ(more.error().kind, ErrorKind::kInvalidArgument);
    EXPECT_NE(more.error().message.find(std::to_string(bytes)), std::string::npos);
  }
  memory->release(all);
  memory->release(nullptr);
  EXPECT_NE(allocate(*memory, 4096), nullptr);
  EXPECT_FALSE(Memory::create(Bytes{4096}));
  EXPECT_FALSE(Memory::create(Bytes{~std::size_t{0}}));
}

// Goal: offset_of() tells inside from outside at every edge.
// Method: spans that begin or end at, before and after the region.
TEST(Memory, OffsetOfChecksTheWholeSpan) {
  const auto memory = make(kMiB);
  std::byte* base = memory->base();
  EXPECT_EQ(memory->offset_of(base + 100, Bytes{50}), Bytes{100});
  EXPECT_EQ(memory->offset_of(base, Bytes{kMiB}), Bytes{0});
  EXPECT_EQ(memory->offset_of(base + kMiB, Bytes{0}), Bytes{kMiB});
  EXPECT_FALSE(memory->offset_of(base, Bytes{kMiB + 1}));
  EXPECT_FALSE(memory->offset_of(base + kMiB - 1, Bytes{2}));
  EXPECT_FALSE(memory->offset_of(base - 1, Bytes{1}));
  EXPECT_FALSE(memory->offset_of(base + 1, Bytes{~std::size_t{0}}));
}

// Goal: what is given back is neither handed out nor mapped, and a file may be mapped in part.
TEST(Memory, ShrinksBeforeUse) {
  const auto memory = make(8 * kMiB);
  memory->header()[0] = std::byte{5};
  memory->shrink(Bytes{16 * kMiB});
  EXPECT_EQ(memory->reserved(), Bytes{8 * kMiB});
  memory->shrink(Bytes{4 * kMiB + 5});
  EXPECT_EQ(memory->reserved(), Bytes{4 * kMiB});
  EXPECT_EQ(memory->file_bytes(), Bytes{8 * kMiB});
  EXPECT_EQ(memory->header()[0], std::byte{5});
  EXPECT_FALSE(memory->offset_of(memory->base() + 4 * kMiB, Bytes{1}));
  const auto more = memory->allocate(Bytes{4 * kMiB});
  ASSERT_FALSE(more);
  EXPECT_NE(more.error().message.find("FARANDOLE_MEMORY"), std::string::npos);
  std::byte* const block = allocate(*memory, 4 * kMiB - Memory::kHeaderBytes);
  std::memset(block, 1, 4 * kMiB - Memory::kHeaderBytes);
}

// Goal: limits leave room for what else the process needs. Method: numbers around each threshold.
TEST(MemoryLimits, LeaveRoom) {
  MemoryLimits limits;
  EXPECT_TRUE(limits.holds(~std::size_t{0}));
  EXPECT_EQ(limits.text(), "");
  limits.address_space = 1024 * kMiB;
  limits.used = 24 * kMiB;
  EXPECT_EQ(limits.room(), 1000 * kMiB);
  EXPECT_TRUE(limits.holds(744 * kMiB));
  EXPECT_FALSE(limits.holds(745 * kMiB));
  EXPECT_EQ(limits.share(5), 100 * kMiB);
  EXPECT_NE(limits.text().find("ulimit -v"), std::string::npos);
  limits.used = 2048 * kMiB;  // lowered later
  EXPECT_EQ(limits.room(), 0u);
  EXPECT_FALSE(limits.holds(0));
}

// Goal: pages exist once touched, stay warm for reuse, and go back beyond the limit.
// Method: count the file's blocks around allocations of 1 GiB of address space.
TEST(Memory, PagesComeOnTouchAndGoOnRelease) {
  const auto memory = make(1024 * kMiB);
  EXPECT_LT(resident(*memory), kMiB);
  std::byte* small = allocate(*memory, 32 * kMiB);
  std::byte* large = allocate(*memory, 100 * kMiB);
  EXPECT_LT(resident(*memory), kMiB);
  std::memset(small, 1, 32 * kMiB);
  std::memset(large, 1, 100 * kMiB);
  EXPECT_GE(resident(*memory), 132 * kMiB);
  memory->release(small);
  EXPECT_GE(resident(*memory), 132 * kMiB) << "a small block stays warm";
  memory->release(large);
  EXPECT_LT(resident(*memory), Memory::kWarmBytes + kMiB);
  std::byte* again = allocate(*memory, 200 * kMiB);
  std::memset(again, 1, 200 * kMiB);
  memory->release(again);
  EXPECT_LT(resident(*memory), Memory::kWarmBytes + kMiB);
}

// Goal: a large block that is touched as a whole has huge pages, for peers as well, and they go
//       back like any others, after which the next block has them again.
// Method: ask the system what is mapped how, where it can; zeros and alignment hold anywhere.
TEST(Memory, LargeBlocksHaveHugePages) {
  constexpr std::size_t kHuge = Memory::kHugePage, kBytes = 40 * kHuge + 5 * 4096;
  const auto memory = make(1024 * kMiB);
  const bool expected = has_huge_pages();
  std::byte* small = *memory->allocate(Bytes{kHuge - 4096}, Memory::Touch::kAll);
  std::byte* sparse = *memory->allocate(Bytes{kHuge}, Memory::Touch::kSome);
  EXPECT_EQ(huge_kib(memory->base()), 0u);
  for (int round = 0; round < 2; ++round) {
    std::byte* block = *memory->allocate(Bytes{kBytes}, Memory::Touch::kAll);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % kHuge, 0u);
    EXPECT_EQ(huge_kib(block), expected ? 40 * kHuge / 1024 : 0u);
    EXPECT_EQ(std::count(block, block + kBytes, std::byte{0}), kBytes);
    block[kBytes - 1] = block[kHuge] = std::byte{7};
    std::byte* peer = Memory::map(memory->fd(), memory->reserved());
    ASSERT_NE(peer, nullptr);
    EXPECT_EQ(peer[block - memory->base() + static_cast<std::ptrdiff_t>(kHuge)], std::byte{7});
    EXPECT_EQ(huge_kib(peer), expected ? kHuge / 1024 : 0u);
    ::munmap(peer, memory->reserved().value());
    memory->release(block);
    EXPECT_LT(resident(*memory), kMiB) << "more than stays warm";
  }
  memory->release(small);
  memory->release(sparse);
}

// Goal: where blocks at huge pages no longer fit, others do.
// Method: take what is left of a region that has one huge page in its middle.
TEST(Memory, LargeBlocksFitWithoutHugePages) {
  const auto memory = make(4 * kMiB);
  EXPECT_NE(allocate(*memory, 4 * kMiB - Memory::kHeaderBytes), nullptr);
}

// Goal: any thread may allocate and release.
// Method: threads hammer one region; a race detector watches, and nothing is left allocated.
TEST(Memory, ManyThreads) {
  const auto memory = make(64 * kMiB);
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&, seed] {
      std::mt19937 random(seed);
      for (int i = 0; i < 500; ++i) {
        const std::size_t bytes = 1 + random() % 20'000;
        auto block = memory->allocate(Bytes{bytes});
        if (!block) continue;
        std::memset(*block, static_cast<int>(seed), bytes);
        memory->release(*block);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_NE(allocate(*memory, 64 * kMiB - Memory::kHeaderBytes), nullptr);
}

}  // namespace
}  // namespace farandole
