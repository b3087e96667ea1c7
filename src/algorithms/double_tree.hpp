// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "schedule/builder.hpp"

namespace farandole {

inline constexpr std::int64_t kDefaultTreePieces = 8;

/// Two binary trees over all ranks except the root, each with half the chunks and with the root
/// above its top. Nodes are numbered 1 to m = p - 1 in symmetric order: the children of node i,
/// whose lowest set bit is h, are i - h/2 and i + h/2. Where i + h/2 is beyond m, the right child
/// is i + the largest power of two that is not. So odd nodes are leaves. The second tree is the
/// first one shifted by one node, so a rank that is a leaf of one tree is an inner node of the
/// other (one rank may be a leaf of both), and no rank sends much more than it receives.
///
/// Chunks [0, pieces) go through the first tree, [pieces, 2 pieces) through the second; a node
/// passes on a chunk while it receives the next. Each tree has a lane for left children and one for
/// right children.
///
/// Source    [Sanders09].
class DoubleTree {
 public:
  DoubleTree(std::int64_t rank_count, std::int64_t root, std::int64_t pieces)
      : nodes_(rank_count - 1), root_(root), pieces_(pieces) {}

  std::int64_t chunks() const { return 2 * pieces_; }

  /// Adds rounds after which the root has the sums in `out`.
  void reduce(ScheduleBuilder& b) const;
  /// Adds rounds after which all ranks have what the root has in `in`, which it copies, or in
  /// `out`.
  void broadcast(ScheduleBuilder& b, Buffer at_root) const;

 private:
  struct Tree;
  std::int64_t nodes_, root_, pieces_;
};

}  // namespace farandole
