// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "algorithms/table.hpp"
#include "schedule/builder.hpp"

namespace farandole {
namespace {

// Direct allreduce: every rank reduces its own chunk straight from every peer, then every rank
// takes every chunk from the rank that reduced it. Lane i joins ranks i + 1 apart.
//
//   chunks   rank_count
//   rounds   2
//   sent     2 (rank_count - 1) / rank_count of the bytes, per rank
//   scratch  none; works in place
//   needs    rank_count <= 1024; rank_count - 1 lanes; meant for shared memory
//   source   two-shot allreduce of peer-mapped memory
Schedule direct_allreduce(const AlgorithmParameters& parameters) {
  const std::int64_t p = parameters.rank_count;
  ScheduleBuilder b(Collective::kAllreduce, "direct", p, p);
  b.rotation({p, 1, 1, 0});
  if (p == 1) {
    b.round().copy(out(0), in(0));
    return std::move(b).build();
  }
  const Expr r = b.rank();
  RoundBuilder scatter = b.round();
  for (int i = 1; i < p; ++i) scatter.lane(i - 1).send(in((r + i) % p), (r + i) % p);
  for (int i = 1; i < p; ++i) {
    if (i > 1) scatter.then();  // one order of operands, whichever arrives first
    scatter.lane(i - 1).receive_reduce(out(r), i == 1 ? in(r) : out(r), (r - i) % p);
  }
  RoundBuilder gather = b.round();
  for (int i = 1; i < p; ++i) {
    const Expr from = (r - i) % p;
    gather.lane(i - 1).send(out(r), (r + i) % p).receive(out(from), from);
  }
  return std::move(b).build();
}

}  // namespace

constinit const AlgorithmInfo kAllreduceDirect = {
    Collective::kAllreduce,
    "direct",
    "every rank reduces its slice from all peers' memory; for shared memory",
    "2a + 2(p-1)/p nb",
    "two-shot",
    "rank_count <= 1024",
    "",
    1024,
    &direct_allreduce};

}  // namespace farandole
