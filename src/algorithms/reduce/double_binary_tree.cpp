// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "algorithms/double_tree.hpp"
#include "algorithms/table.hpp"

namespace farandole {
namespace {

// Double binary tree reduce: each half of the message climbs a tree of its own, pipelined in
// pieces; the leaves of one tree are inner nodes of the other.
//
//   chunks   2 pieces, one in each tree; 8 pieces by default (option chunks)
//   rounds   pieces + floor(lg(p - 1)) at most, per rank
//   sent     the bytes once, per rank
//   scratch  none; works in place
//   needs    rank_count >= 1; 4 lanes
//   source   [Sanders09]
Schedule double_binary_tree_reduce(const AlgorithmParameters& parameters) {
  const std::int64_t p = parameters.rank_count;
  const DoubleTree trees(p, parameters.root,
                         parameters.chunks > 0 ? parameters.chunks : kDefaultTreePieces);
  ScheduleBuilder b(Collective::kReduce, "double_binary_tree", p, trees.chunks());
  b.root(parameters.root);
  if (p == 1) {
    b.round().copy(out(0, trees.chunks()), in(0, trees.chunks()));
  } else {
    trees.reduce(b);
  }
  return std::move(b).build();
}

}  // namespace

constinit const AlgorithmInfo kReduceDoubleBinaryTree = {
    Collective::kReduce,
    "double_binary_tree",
    "halves go up two trees whose leaves and inner nodes swap",
    "lg p a + nb, pipelined",
    "[Sanders09]",
    "rank_count >= 1",
    "chunks",
    kRanksMax,
    &double_binary_tree_reduce};

}  // namespace farandole
