// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "algorithms/table.hpp"
#include "schedule/builder.hpp"

namespace farandole {
namespace {

// Direct allgather: every rank takes every chunk from the rank that has it. Lane i joins ranks
// i + 1 apart.
//
//   chunks   rank_count
//   rounds   1, and a local one for the own chunk
//   sent     (rank_count - 1) / rank_count of the output bytes, per rank
//   scratch  none; works in place
//   needs    rank_count <= 1024; rank_count - 1 lanes; meant for shared memory
//   source   second half of the two-shot allreduce
Schedule direct_allgather(const AlgorithmParameters& parameters) {
  const std::int64_t p = parameters.rank_count;
  ScheduleBuilder b(Collective::kAllgather, "direct", p, p);
  b.rotation({p, 1, 1, 0});
  const Expr r = b.rank();
  RoundBuilder gather = b.round();
  for (int i = 1; i < p; ++i) {
    const Expr from = (r - i) % p;
    gather.lane(i - 1).send(in(0), (r + i) % p).receive(out(from), from);
  }
  // A round of its own, since in place it would write what is being sent.
  b.round().copy(out(r), in(0));
  return std::move(b).build();
}

}  // namespace

constinit const AlgorithmInfo kAllgatherDirect = {
    Collective::kAllgather,
    "direct",
    "every rank reads all peers' memory; for shared memory",
    "a + (p-1)/p nb",
    "two-shot",
    "rank_count <= 1024",
    "",
    1024,
    &direct_allgather};

}  // namespace farandole
