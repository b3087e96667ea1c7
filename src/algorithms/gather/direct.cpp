// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "algorithms/table.hpp"
#include "schedule/builder.hpp"

namespace farandole {
namespace {

// Direct gather: the root takes every rank's chunk in turn.
//
//   chunks   rank_count at the root
//   rounds   rank_count - 1 at the root, and a local one; 1 elsewhere
//   sent     the bytes once, per rank
//   scratch  none; works in place
//   needs    rank_count <= 1024; any transport
//   source   linear gather
Schedule direct_gather(const AlgorithmParameters& parameters) {
  const std::int64_t p = parameters.rank_count, root = parameters.root;
  ScheduleBuilder b(Collective::kGather, "direct", p, p);
  b.root(root);
  const Expr r = b.rank(), v = (r - root) % p;
  b.round().when(v, 1, p).send(in(0), root);
  b.round().when(v, 0, 1).copy(out(root), in(0));
  b.loop(p - 1, [&](const Expr& s) {
    const Expr from = (r + s + 1) % p;
    b.round().when(v, 0, 1).receive(out(from), from);
  });
  return std::move(b).build();
}

}  // namespace

constinit const AlgorithmInfo kGatherDirect = {
    Collective::kGather,
    "direct",
    "the root takes each rank in turn; best for large messages",
    "(p-1)(a + nb)",
    "linear",
    "rank_count <= 1024",
    "",
    1024,
    &direct_gather};

}  // namespace farandole
