// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "algorithms/table.hpp"
#include "schedule/builder.hpp"

namespace farandole {
namespace {

// Direct alltoall: every rank reads its chunk from every other one at once. Lane i joins ranks
// i + 1 apart.
//
//   chunks   rank_count
//   rounds   1
//   sent     (rank_count - 1) / rank_count of the bytes, per rank
//   scratch  none; never in place
//   needs    rank_count <= 1024; rank_count - 1 lanes; meant for shared memory
//   source   all messages at once
Schedule direct_alltoall(const AlgorithmParameters& parameters) {
  const std::int64_t p = parameters.rank_count;
  ScheduleBuilder b(Collective::kAlltoall, "direct", p, p);
  b.rotation({p, 1, 1, 0});
  const Expr r = b.rank();
  RoundBuilder round = b.round();
  for (int i = 1; i < p; ++i) {
    const Expr to = (r + i) % p, from = (r - i) % p;
    round.lane(i - 1).send(in(to), to).receive(out(from), from);
  }
  round.copy(out(r), in(r));
  return std::move(b).build();
}

}  // namespace

constinit const AlgorithmInfo kAlltoallDirect = {Collective::kAlltoall,
                                                 "direct",
                                                 "all partners at once; for shared memory",
                                                 "a + (p-1) nb",
                                                 "all at once",
                                                 "rank_count <= 1024",
                                                 "",
                                                 1024,
                                                 &direct_alltoall};

}  // namespace farandole
