// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "bootstrap/member.hpp"
#include "farandole/result.hpp"
#include "farandole/types.hpp"

namespace farandole::shm {

/// The entry "shm.memory" of a member record: "pid:fd:bytes:room", the last two being Memory's
/// file_bytes() and room().
struct MemoryEntry {
  int pid = 0, fd = -1;
  unsigned long long bytes = 0, room = 0;

  std::string text() const;
  static std::optional<MemoryEntry> of(const Member& member);
};

/// How many bytes of each memory the ranks of a host map, its owner included. Each rank maps the
/// memories of all; with this limit all of them fit into the address space of each rank. The same
/// on all ranks.
Bytes mapped_max(const Members& members, const std::string& host_id);

/// A peer's Memory as this process sees it.
class Mapping {
 public:
  Mapping() = default;
  /// Memory of this process, which outlives the mapping.
  Mapping(std::byte* base, Bytes bytes) : base_(base), bytes_(bytes.value()) {}
  /// Maps the memory that the member's entry "shm.memory" names, at most `most` bytes of it,
  /// through /proc: it has no path of its own.
  ///
  /// Errors    kUnsupported naming the peer, when this process may not or cannot map it.
  static Result<Mapping> open(const Member& member, Bytes most);
  ~Mapping();
  Mapping(Mapping&& other) noexcept { swap(other); }
  Mapping& operator=(Mapping&& other) noexcept { return swap(other), *this; }

  /// `count` objects at `offset`; null if they do not lie inside the mapping or are not aligned.
  template <class T>
  T* at(std::uint64_t offset, std::size_t count = 1) const {
    const bool inside = offset <= bytes_ && count <= (bytes_ - offset) / sizeof(T);
    return inside && offset % alignof(T) == 0 ? reinterpret_cast<T*>(base_ + offset) : nullptr;
  }

 private:
  void swap(Mapping& other) {
    std::swap(base_, other.base_);
    std::swap(bytes_, other.bytes_);
    std::swap(owned_, other.owned_);
  }
  std::byte* base_ = nullptr;
  std::size_t bytes_ = 0;
  bool owned_ = false;  // unmapped by the destructor
};

}  // namespace farandole::shm
