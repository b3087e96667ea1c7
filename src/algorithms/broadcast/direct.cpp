// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "algorithms/table.hpp"
#include "schedule/builder.hpp"

namespace farandole {
namespace {

// Direct broadcast: the root sends to each rank in turn.
//
//   chunks   1
//   rounds   rank_count - 1 at the root, and a local one; 1 elsewhere
//   sent     rank_count - 1 times the bytes, by the root
//   scratch  none; works in place
//   needs    rank_count <= 1024; any transport
//   source   [Xin20] eq. 1
Schedule direct_broadcast(const AlgorithmParameters& parameters) {
  const std::int64_t p = parameters.rank_count, root = parameters.root;
  ScheduleBuilder b(Collective::kBroadcast, "direct", p, 1);
  b.root(root);
  const Expr r = b.rank(), v = (r - root) % p;
  b.round().when(v, 1, p).receive(out(0), root);
  b.loop(p - 1, [&](const Expr& s) { b.round().when(v, 0, 1).send(in(0), (r + s + 1) % p); });
  b.round().when(v, 0, 1).copy(out(0), in(0));
  return std::move(b).build();
}

}  // namespace

constinit const AlgorithmInfo kBroadcastDirect = {Collective::kBroadcast,
                                                  "direct",
                                                  "the root sends to each rank in turn",
                                                  "(p-1)(a + nb)",
                                                  "[Xin20]",
                                                  "rank_count <= 1024",
                                                  "",
                                                  1024,
                                                  &direct_broadcast};

}  // namespace farandole
