// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "simcuda/memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "simcuda/settings.hpp"

namespace simcuda {
namespace {

constexpr std::size_t kPage = 4096;

std::size_t in_pages(std::size_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

const std::size_t kHead = in_pages(sizeof(Shadow));

std::string described(const char* what, std::uint32_t stream, std::uint32_t number) {
  return std::string(what) + " (stream " + std::to_string(stream) + ", operation " +
         std::to_string(number) + ")";
}

std::string range(std::uint64_t low, std::uint64_t high) {
  return "[" + std::to_string(low) + ", " + std::to_string(high) + ")";
}

}  // namespace

Memory& Memory::instance() {
  static auto* const memory = new Memory;  // the streams' threads never end
  return *memory;
}

std::byte* Memory::map(int fd, std::size_t bytes, Block block) {
  const std::size_t mapped = in_pages(std::max<std::size_t>(bytes, 1));
  void* const head = ::mmap(nullptr, kHead + mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  // The device's addresses: nothing is there that the host could read.
  void* const device =
      ::mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (head == MAP_FAILED || device == MAP_FAILED) return nullptr;
  block.begin = static_cast<std::byte*>(device);
  block.bytes = bytes;
  block.real = static_cast<std::byte*>(head) + kHead;
  block.shadow = static_cast<Shadow*>(head);
  block.mapped = mapped;
  block.fd = fd;
  const std::lock_guard lock(mutex_);
  block.id = ++last_id_;
  blocks_[block.begin] = block;
  return block.begin;
}

std::byte* Memory::allocate(std::size_t bytes, int ordinal, bool ipc) {
  const int fd = ::memfd_create("simcuda-device", MFD_CLOEXEC);
  const std::size_t mapped = in_pages(std::max<std::size_t>(bytes, 1));
  if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(kHead + mapped)) != 0) return nullptr;
  std::byte* const begin =
      map(fd, bytes, {.kind = Block::Kind::kDevice, .ordinal = ordinal, .ipc = ipc});
  if (begin != nullptr) std::memset(find(begin)->real, 0xDB, bytes);
  return begin;
}

std::byte* Memory::import(int pid, int fd, std::size_t bytes, int ordinal) {
  const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(fd);
  const int own = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (own < 0) return nullptr;
  return map(own, bytes, {.kind = Block::Kind::kImported, .ordinal = ordinal});
}

std::byte* Memory::pin(void* memory, std::size_t bytes, Block::Kind kind) {
  const std::lock_guard lock(mutex_);
  auto* const begin = static_cast<std::byte*>(memory);
  const auto behind = blocks_.lower_bound(begin + bytes);
  if (behind != blocks_.begin()) {
    const Block& before = std::prev(behind)->second;
    if (before.begin + before.bytes > begin) return nullptr;
  }
  blocks_[begin] = {.kind = kind,
                    .begin = begin,
                    .bytes = bytes,
                    .real = begin,
                    .shadow = new Shadow{},
                    .id = ++last_id_};
  return begin;
}

void Memory::unmap(const Block& block) {
  if (!block.on_device()) {
    delete block.shadow;
    if (block.kind == Block::Kind::kPinned) ::munmap(block.begin, in_pages(block.bytes));
    return;
  }
  if (block.kind == Block::Kind::kDevice) block.shadow->freed = 1;
  ::munmap(block.shadow, kHead + block.mapped);  // the device's addresses are not given out again
  ::close(block.fd);
}

bool Memory::release(const void* begin, Block::Kind kind) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(static_cast<const std::byte*>(begin));
  if (found == blocks_.end() || found->second.kind != kind) return false;
  unmap(found->second);
  blocks_.erase(found);
  return true;
}

std::optional<Block> Memory::find(const void* pointer) const {
  const std::lock_guard lock(mutex_);
  const auto* const at = static_cast<const std::byte*>(pointer);
  const auto behind = blocks_.upper_bound(at);
  if (behind == blocks_.begin()) return std::nullopt;
  const Block& block = std::prev(behind)->second;
  if (at >= block.begin + block.bytes) return std::nullopt;
  return block;
}

std::size_t Memory::count(Block::Kind kind) const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::size_t>(
      std::ranges::count_if(blocks_, [&](const auto& entry) { return entry.second.kind == kind; }));
}

std::byte* Memory::touch(const Accessor& who, const void* pointer, std::size_t bytes, bool writes) {
  const auto* const at = static_cast<const std::byte*>(pointer);
  const std::optional<Block> block = find(pointer);
  if (!block) return const_cast<std::byte*>(at);
  const auto low = static_cast<std::uint64_t>(at - block->begin), high = low + bytes;
  const std::string name = described(who.what, static_cast<std::uint32_t>(who.stream), who.number);
  const std::string buffer = " of buffer " + std::to_string(block->id);
  if (high > block->bytes) {
    die(kFault, "FAULT: " + name + " touches " + range(low, high) + buffer + ", which has " +
                    std::to_string(block->bytes) + " bytes");
  }
  if (block->shadow->freed != 0) {
    die(kFault, "FAULT: " + name + " touches memory that its owner has freed");
  }
  const SharedLock lock(block->shadow->lock);
  Shadow& shadow = *block->shadow;
  std::uint32_t kept = 0;
  for (std::uint32_t i = 0; i < shadow.count; ++i) {
    const Access earlier = shadow.at[i];
    const bool ordered = who.knows.knows(static_cast<int>(earlier.stream), earlier.number);
    if (earlier.low < high && low < earlier.high && (writes || earlier.writes) && !ordered) {
      session().races.fetch_add(1);
      report("RACE: " + name + (writes ? " writes " : " reads ") + range(low, high) + buffer +
             ", not ordered after " +
             described(earlier.what.data(), earlier.stream, earlier.number) + ", which " +
             (earlier.writes ? "writes " : "reads ") + range(earlier.low, earlier.high));
    }
    const bool within = earlier.low >= low && earlier.high <= high;
    if (!(ordered && within && (writes || !earlier.writes))) shadow.at[kept++] = earlier;
  }
  if (kept == shadow.at.size()) {  // the oldest is forgotten
    std::copy(shadow.at.begin() + 1, shadow.at.end(), shadow.at.begin());
    --kept;
  }
  Access& mine = shadow.at[kept++];
  mine = {low, high, static_cast<std::uint32_t>(who.stream), who.number, writes, {}};
  std::strncpy(mine.what.data(), who.what, mine.what.size() - 1);
  shadow.count = kept;
  return block->real + low;
}

std::byte* Memory::word(const void* pointer) const {
  const auto* const at = static_cast<const std::byte*>(pointer);
  const std::optional<Block> block = find(pointer);
  return block ? block->real + (at - block->begin) : const_cast<std::byte*>(at);
}

const Block* Memory::faulted(const void* pointer) const {
  const auto* const at = static_cast<const std::byte*>(pointer);
  for (const auto& [begin, block] : blocks_) {
    if (block.on_device() && at >= begin && at < begin + block.mapped) return &block;
  }
  return nullptr;
}

}  // namespace simcuda
