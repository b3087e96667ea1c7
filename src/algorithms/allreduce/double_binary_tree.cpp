// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "algorithms/double_tree.hpp"
#include "algorithms/table.hpp"

namespace farandole {
namespace {

// Double binary tree allreduce: each half of the message climbs a tree of its own to rank 0 and
// comes down again, pipelined in pieces; the leaves of one tree are inner nodes of the other.
//
//   chunks   2 pieces, one in each tree; 8 pieces by default (option chunks)
//   rounds   2 (pieces + floor(lg(p - 1))) at most, per rank
//   sent     about 2 times the bytes, per rank
//   scratch  none; works in place
//   needs    rank_count >= 1; 4 lanes
//   source   [Sanders09]
Schedule double_binary_tree_allreduce(const AlgorithmParameters& parameters) {
  const std::int64_t p = parameters.rank_count;
  const DoubleTree trees(p, 0, parameters.chunks > 0 ? parameters.chunks : kDefaultTreePieces);
  ScheduleBuilder b(Collective::kAllreduce, "double_binary_tree", p, trees.chunks());
  if (p == 1) {
    b.round().copy(out(0, trees.chunks()), in(0, trees.chunks()));
    return std::move(b).build();
  }
  trees.reduce(b);
  trees.broadcast(b, Buffer::kOut);
  return std::move(b).build();
}

}  // namespace

constinit const AlgorithmInfo kAllreduceDoubleBinaryTree = {
    Collective::kAllreduce,
    "double_binary_tree",
    "halves go up and down two trees whose leaves and inner nodes swap",
    "2 lg p a + 2nb, pipelined",
    "[Sanders09]",
    "rank_count >= 1",
    "chunks",
    kRanksMax,
    &double_binary_tree_allreduce};

}  // namespace farandole
