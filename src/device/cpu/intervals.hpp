// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>

namespace farandole {

/// A set of bytes, kept as disjoint intervals [offset, offset + bytes) that are never adjacent.
class Intervals {
 public:
  struct Interval {
    std::size_t offset = 0;
    std::size_t bytes = 0;
  };

  /// Adds bytes that are not in the set; returns the interval that they are now part of.
  Interval add(std::size_t offset, std::size_t bytes);

  /// Removes the part of [offset, offset + bytes) that is in the set.
  void remove(std::size_t offset, std::size_t bytes);

  const std::map<std::size_t, std::size_t>& map() const { return map_; }  // offset -> bytes
  std::size_t total_bytes() const { return total_bytes_; }

 private:
  std::map<std::size_t, std::size_t> map_;
  std::size_t total_bytes_ = 0;
};

}  // namespace farandole
