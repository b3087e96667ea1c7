// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "algorithms/table.hpp"
#include "schedule/builder.hpp"

namespace farandole {
namespace {

// One-shot allreduce: every rank sends all it has to every other one, and sums what it gets in the
// order of the ranks. Lane i joins ranks i + 1 apart.
//
//   chunks   1
//   rounds   1, and a local one for each sum
//   sent     rank_count - 1 times the bytes, per rank
//   scratch  rank_count slots; works in place
//   needs    rank_count <= 512; rank_count - 1 lanes; meant for shared memory
//   source   one-shot allreduce of peer-mapped memory
Schedule one_shot_allreduce(const AlgorithmParameters& parameters) {
  const std::int64_t p = parameters.rank_count;
  ScheduleBuilder b(Collective::kAllreduce, "one_shot", p, 1);
  if (p == 1) {
    b.round().copy(out(0), in(0));
    return std::move(b).build();
  }
  b.scratch_slots(p);
  const Expr r = b.rank();
  RoundBuilder exchange = b.round();
  exchange.copy(scratch(r, 0), in(0));
  for (int i = 1; i < p; ++i) {
    const Expr from = (r - i) % p;
    exchange.lane(i - 1).send(in(0), (r + i) % p).receive(scratch(from, 0), from);
  }
  b.round().reduce(out(0), scratch(0, 0), scratch(1, 0));
  b.loop(p - 2, [&](const Expr& s) { b.round().reduce(out(0), out(0), scratch(s + 2, 0)); });
  return std::move(b).build();
}

}  // namespace

constinit const AlgorithmInfo kAllreduceOneShot = {
    Collective::kAllreduce,
    "one_shot",
    "all data to all ranks at once; for small messages in shared memory",
    "a + (p-1) nb",
    "one-shot",
    "rank_count <= 512",
    "",
    512,
    &one_shot_allreduce};

}  // namespace farandole
