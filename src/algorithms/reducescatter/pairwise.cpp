// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "algorithms/table.hpp"
#include "schedule/builder.hpp"

namespace farandole {
namespace {

// Pairwise reducescatter: in round s, each rank sends its part of the chunk of the rank s above,
// and adds to its own chunk what comes from the rank s below. No sum is passed on.
//
//   chunks   rank_count, of which one is the output
//   rounds   rank_count - 1
//   sent     (rank_count - 1) / rank_count of the input bytes, per rank
//   scratch  none; works in place
//   needs    rank_count >= 1; any transport
//   source   [Thakur05] §4.2
Schedule pairwise_reducescatter(const AlgorithmParameters& parameters) {
  const std::int64_t p = parameters.rank_count;
  ScheduleBuilder b(Collective::kReducescatter, "pairwise", p, p);
  b.rotation({p, 1, 1, 0});
  const Expr r = b.rank();
  if (p == 1) {
    b.round().copy(out(0), in(0));
    return std::move(b).build();
  }
  b.round().send(in((r + 1) % p), (r + 1) % p).receive_reduce(out(0), in(r), (r - 1) % p);
  b.loop(p - 2, [&](const Expr& s) {
    const Expr to = (r + s + 2) % p;
    b.round().send(in(to), to).receive_reduce(out(0), out(0), (r - s - 2) % p);
  });
  return std::move(b).build();
}

}  // namespace

constinit const AlgorithmInfo kReducescatterPairwise = {Collective::kReducescatter,
                                                        "pairwise",
                                                        "one partner at a time, no scratch",
                                                        "(p-1)a + (p-1)/p nb",
                                                        "[Thakur05]",
                                                        "rank_count >= 1",
                                                        "",
                                                        kRanksMax,
                                                        &pairwise_reducescatter};

}  // namespace farandole
