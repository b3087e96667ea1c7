// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "simcuda/session.hpp"

namespace simcuda {

/// What an operation did to a part of a block.
struct Access {
  std::uint64_t low, high;  // bytes of the block
  std::uint32_t stream, number;
  bool writes;
  std::array<char, 23> what;
};

/// The accesses of a block that later ones have to be ordered with. Lies in the block's file, so
/// that all processes that share the block share it.
struct Shadow {
  std::atomic<std::uint32_t> lock, freed;
  std::uint32_t count;
  std::array<Access, 254> at;
};

/// Memory that the driver knows.
struct Block {
  enum class Kind : std::uint8_t { kDevice, kImported, kPinned, kRegistered };
  Kind kind;
  std::byte* begin;  // as the program knows it
  std::size_t bytes;
  std::byte* real;  // where operations find it
  Shadow* shadow;
  std::size_t mapped = 0;
  int fd = -1;
  std::uint64_t id = 0;
  int ordinal = 0;
  bool ipc = false;
  bool on_device() const { return kind == Kind::kDevice || kind == Kind::kImported; }
};

/// Who touches memory.
struct Accessor {
  int stream;
  std::uint32_t number;
  const char* what;
  const VectorClock& knows;
};

/// All blocks of this process.
///
/// Threads   any.
class Memory {
 public:
  static Memory& instance();

  /// Device memory that the host cannot touch; filled with 0xDB. Null if there is no room.
  std::byte* allocate(std::size_t bytes, int ordinal, bool ipc);
  /// Host memory that operations reach. Null for kRegistered if part of it is registered already.
  std::byte* pin(void* memory, std::size_t bytes, Block::Kind kind);
  /// Maps another process's allocation. Null if it is gone.
  std::byte* import(int pid, int fd, std::size_t bytes, int ordinal);
  /// Forgets the block that begins there; false if there is none of this kind.
  bool release(const void* begin, Block::Kind kind);
  std::optional<Block> find(const void* pointer) const;
  std::size_t count(Block::Kind kind) const;

  /// Where [pointer, pointer + bytes) really is; reports an access that is not ordered with
  /// earlier ones. Memory that the driver does not know is where it is.
  std::byte* touch(const Accessor& who, const void* pointer, std::size_t bytes, bool writes);
  /// The same for a word by which streams are ordered.
  std::byte* word(const void* pointer) const;
  /// Which device memory a faulting address lies in; from a signal handler.
  const Block* faulted(const void* pointer) const;

 private:
  std::byte* map(int fd, std::size_t bytes, Block block);
  static void unmap(const Block& block);

  mutable std::mutex mutex_;
  std::map<const std::byte*, Block> blocks_;
  std::uint64_t last_id_ = 0;
};

}  // namespace simcuda
