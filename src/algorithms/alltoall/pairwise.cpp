// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "algorithms/table.hpp"
#include "schedule/builder.hpp"

namespace farandole {
namespace {

// Pairwise alltoall: in round s, each rank sends to the rank s above and receives from the one s
// below, so that all links carry one message at a time.
//
//   chunks   rank_count
//   rounds   rank_count - 1, and a local one
//   sent     (rank_count - 1) / rank_count of the bytes, per rank
//   scratch  none; never in place
//   needs    rank_count >= 1; any transport
//   source   [Thakur05] §4.6
Schedule pairwise_alltoall(const AlgorithmParameters& parameters) {
  const std::int64_t p = parameters.rank_count;
  ScheduleBuilder b(Collective::kAlltoall, "pairwise", p, p);
  b.rotation({p, 1, 1, 0});
  const Expr r = b.rank();
  b.round().copy(out(r), in(r));
  b.loop(p - 1, [&](const Expr& s) {
    const Expr to = (r + s + 1) % p, from = (r - s - 1) % p;
    b.round().send(in(to), to).receive(out(from), from);
  });
  return std::move(b).build();
}

}  // namespace

constinit const AlgorithmInfo kAlltoallPairwise = {Collective::kAlltoall,
                                                   "pairwise",
                                                   "one partner at a time; best for large messages",
                                                   "(p-1)a + (p-1) nb",
                                                   "[Thakur05]",
                                                   "rank_count >= 1",
                                                   "",
                                                   kRanksMax,
                                                   &pairwise_alltoall};

}  // namespace farandole
