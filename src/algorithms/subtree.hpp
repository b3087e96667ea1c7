// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace farandole {

/// The chunks of a binomial subtree in the root's buffer. Counted from the root, its child at
/// distance d stands for ranks d to 2 d - 1. In the order of all ranks these may continue at rank 0
/// after the last, so that their chunks are two blocks; that happens to one subtree at most.
struct Subtree {
  std::int64_t first, count;  // chunks of the root's buffer, starting at the child's
  std::int64_t wrapped;       // how many more, starting at chunk 0

  Subtree(std::int64_t rank_count, std::int64_t root, std::int64_t d)
      : first((root + d) % rank_count),
        count(std::min({d, rank_count - d, rank_count - first})),
        wrapped(std::min(d, rank_count - d) - count) {}

  /// Distance of the root's last child.
  static std::int64_t distance_max(std::int64_t rank_count) {
    return rank_count < 2 ? 0
                          : static_cast<std::int64_t>(
                                std::bit_floor(static_cast<std::uint64_t>(rank_count - 1)));
  }
  /// Chunks of the largest subtree below a child of the root.
  static std::int64_t chunks_max(std::int64_t rank_count) {
    const std::int64_t d = distance_max(rank_count);
    return std::max(d / 2, std::min(d, rank_count - d));
  }
};

}  // namespace farandole
