// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <limits>
#include <string>

namespace farandole {

/// Memories consist of whole pages of this size.
inline constexpr std::size_t kPage = 4096;

/// What a process may reserve. Batch systems limit its address space, into which each rank of a
/// host also maps its peers' memories, and the length of its files; library memory is such a file.
struct MemoryLimits {
  static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();
  std::size_t address_space = kNone;  // ulimit -v
  std::size_t used = 0;               // of it
  std::size_t file = kNone;           // ulimit -f

  static MemoryLimits now();

  std::size_t room() const;
  /// Whether there is room for this many bytes and for what else a process needs to run.
  bool holds(std::size_t bytes) const { return holds(room(), bytes); }
  static bool holds(std::size_t room, std::size_t bytes);
  /// What each of so many memories gets without such room: together they take half of the room.
  std::size_t share(std::size_t memories) const { return share(room(), memories); }
  static std::size_t share(std::size_t room, std::size_t memories);

  /// "; the limit on address space (ulimit -v) is 4 bytes, of which 3 are in use", and the like for
  /// files; empty without limits.
  std::string text() const;
};

}  // namespace farandole
