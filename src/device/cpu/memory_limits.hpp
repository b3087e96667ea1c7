// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <limits>
#include <string>

namespace farandole {

/// What memories are made of.
inline constexpr std::size_t kPage = 4096;

/// What a process may reserve: batch systems limit its address space, in which each rank of a host
/// also maps its peers' memories, and the length of its files, of which library memory is one.
struct MemoryLimits {
  static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();
  std::size_t address_space = kNone;  // ulimit -v
  std::size_t used = 0;               // of it
  std::size_t file = kNone;           // ulimit -f

  static MemoryLimits now();

  std::size_t room() const;
  /// Whether there is room for so much, and for what else a process needs to run.
  bool holds(std::size_t bytes) const { return holds(room(), bytes); }
  static bool holds(std::size_t room, std::size_t bytes);
  /// What each of so many memories gets where there is not: together they take half of the room.
  std::size_t share(std::size_t memories) const { return share(room(), memories); }
  static std::size_t share(std::size_t room, std::size_t memories);

  /// "; the limit on address space (ulimit -v) is 4 bytes, 3 of them in use", so too for files;
  /// empty without limits.
  std::string text() const;
};

}  // namespace farandole
