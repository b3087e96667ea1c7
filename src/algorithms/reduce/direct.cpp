// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "algorithms/table.hpp"
#include "schedule/builder.hpp"

namespace farandole {
namespace {

// Direct reduce: the root receives every rank's input in the order of the ranks, whichever arrives
// first, which makes the result ((x0 + x1) + x2) + ...
//
//   chunks   1
//   rounds   rank_count - 1 at the root, and a local one if it is neither of the first two ranks;
//            1 elsewhere
//   sent     the bytes once, per rank
//   scratch  1 slot, which holds the sum until the root's own input is due; works in place
//   needs    rank_count <= 1024; any transport
//   source   linear reduce
Schedule direct_reduce(const AlgorithmParameters& parameters) {
  const std::int64_t p = parameters.rank_count, root = parameters.root;
  ScheduleBuilder b(Collective::kReduce, "direct", p, 1);
  b.root(root);
  if (p == 1) {
    b.round().copy(out(0), in(0));
    return std::move(b).build();
  }
  const Expr r = b.rank();
  const Span before = scratch(0, 0);
  RoundBuilder others = b.round();
  others.when((r - root) % p, 1, p).send(in(0), root);
  const auto at_root = [&] {
    RoundBuilder round = b.round();
    round.when(r, root, root + 1);
    return round;
  };
  if (root == 0) at_root().receive_reduce(out(0), in(0), 1);
  if (root == 1) at_root().receive_reduce_first(out(0), in(0), 0);
  if (root >= 2) {
    b.scratch_slots(1);
    at_root().receive(before, 0);
    b.loop(root - 1, [&](const Expr& s) { at_root().receive_reduce(before, before, s + 1); });
    at_root().reduce(out(0), before, in(0));
  }
  const std::int64_t next = root == 0 ? 2 : root + 1;
  b.loop(p - next, [&](const Expr& s) { at_root().receive_reduce(out(0), out(0), s + next); });
  return std::move(b).build();
}

}  // namespace

constinit const AlgorithmInfo kReduceDirect = {
    Collective::kReduce,
    "direct",
    "the root takes each rank in turn, in the order of the ranks",
    "(p-1)(a + nb)",
    "linear",
    "rank_count <= 1024",
    "",
    1024,
    &direct_reduce};

}  // namespace farandole
