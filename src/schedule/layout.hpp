// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "farandole/types.hpp"

namespace farandole {

/// Where the chunks of one buffer lie, in elements.
///
/// Slots     A slot of scratch holds chunk_elements_max() elements and slots follow each other
///           without a gap, so that a span of several chunks is contiguous there too: every chunk
///           except the last ones of a shared layout is exactly that long. With by_counts() chunks
///           differ in length, and a span of scratch holds one chunk only.
class Layout {
 public:
  /// `chunks` chunks share n elements (allreduce, reduce, broadcast). Each is n / chunks rounded up
  /// to whole cache lines of 64 bytes; the last ones are shorter or empty.
  static Layout share(Count n, std::int64_t chunks, Bytes element);
  /// `chunks` chunks of exactly n elements (reducescatter, allgather).
  static Layout repeat(Count n, std::int64_t chunks);
  /// counts[c] elements in chunk c, one chunk after the other.
  static Layout by_counts(std::span<const std::size_t> counts);

  /// First element of a chunk, 0 <= chunk <= chunks.
  Count offset(std::int64_t chunk) const {
    const auto index = static_cast<std::size_t>(chunk);
    if (!offsets_.empty()) return Count{offsets_[index]};
    if (chunk_.value() == 0) return Count{0};
    // Compared by division, so that no product of a large index overflows.
    return index > total_.value() / chunk_.value() ? total_ : Count{index * chunk_.value()};
  }
  /// Elements in chunks [first, first + count).
  Count length(std::int64_t first, std::int64_t count) const {
    return offset(first + count) - offset(first);
  }
  /// Elements in one slot of scratch.
  Count chunk_elements_max() const { return chunk_; }
  Count total() const { return total_; }

 private:
  Layout(Count total, Count chunk) : total_(total), chunk_(chunk) {}
  Count total_, chunk_;
  std::vector<std::size_t> offsets_;  // [chunks + 1] of by_counts(), else empty
};

}  // namespace farandole
