// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "algorithms/table.hpp"
#include "schedule/builder.hpp"

namespace farandole {
namespace {

// Direct scatter: the root sends every rank its chunk in turn.
//
//   chunks   rank_count at the root
//   rounds   rank_count - 1 at the root, and a local one; 1 elsewhere
//   sent     rank_count - 1 chunks, by the root
//   scratch  none; works in place
//   needs    rank_count <= 1024; any transport
//   source   linear scatter
Schedule direct_scatter(const AlgorithmParameters& parameters) {
  const std::int64_t p = parameters.rank_count, root = parameters.root;
  ScheduleBuilder b(Collective::kScatter, "direct", p, p);
  b.root(root);
  const Expr r = b.rank(), v = (r - root) % p;
  b.round().when(v, 1, p).receive(out(0), root);
  b.loop(p - 1, [&](const Expr& s) {
    const Expr to = (r + s + 1) % p;
    b.round().when(v, 0, 1).send(in(to), to);
  });
  b.round().when(v, 0, 1).copy(out(0), in(root));
  return std::move(b).build();
}

}  // namespace

constinit const AlgorithmInfo kScatterDirect = {
    Collective::kScatter,
    "direct",
    "the root serves each rank in turn; best for large messages",
    "(p-1)(a + nb)",
    "linear",
    "rank_count <= 1024",
    "",
    1024,
    &direct_scatter};

}  // namespace farandole
