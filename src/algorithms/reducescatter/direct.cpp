// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "algorithms/table.hpp"
#include "schedule/builder.hpp"

namespace farandole {
namespace {

// Direct reducescatter: every rank reduces its own chunk straight from every peer. Lane i joins
// ranks i + 1 apart.
//
//   chunks   rank_count, of which one is the output
//   rounds   1
//   sent     (rank_count - 1) / rank_count of the input bytes, per rank
//   scratch  none; works in place
//   needs    rank_count <= 1024; rank_count - 1 lanes; meant for shared memory
//   source   first half of the two-shot allreduce
Schedule direct_reducescatter(const AlgorithmParameters& parameters) {
  const std::int64_t p = parameters.rank_count;
  ScheduleBuilder b(Collective::kReducescatter, "direct", p, p);
  b.rotation({p, 1, 1, 0});
  const Expr r = b.rank();
  RoundBuilder round = b.round();
  if (p == 1) round.copy(out(0), in(0));
  for (int i = 1; i < p; ++i) round.lane(i - 1).send(in((r + i) % p), (r + i) % p);
  for (int i = 1; i < p; ++i) {
    if (i > 1) round.then();  // one order of operands, whichever arrives first
    round.lane(i - 1).receive_reduce(out(0), i == 1 ? in(r) : out(0), (r - i) % p);
  }
  return std::move(b).build();
}

}  // namespace

constinit const AlgorithmInfo kReducescatterDirect = {
    Collective::kReducescatter,
    "direct",
    "every rank reduces its chunk from all peers' memory; for shared memory",
    "a + (p-1)/p nb",
    "two-shot",
    "rank_count <= 1024",
    "",
    1024,
    &direct_reducescatter};

}  // namespace farandole
