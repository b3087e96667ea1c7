// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "algorithms/table.hpp"
#include "schedule/builder.hpp"

namespace farandole {
namespace {

// Ring allreduce: partial sums travel once around the ring, then the sums do. The sum of chunk r
// is complete at rank r, as in reducescatter.
//
//   chunks   rank_count
//   rounds   2 (rank_count - 1)
//   sent     2 (rank_count - 1) / rank_count of the bytes, per rank
//   scratch  none; works in place
//   needs    rank_count >= 1; any transport
//   source   [Patarasuk09]
Schedule ring_allreduce(const AlgorithmParameters& parameters) {
  const std::int64_t p = parameters.rank_count;
  ScheduleBuilder b(Collective::kAllreduce, "ring", p, p);
  b.rotation({p, 1, 1, 0});
  b.stage("ring", p);
  if (p == 1) {
    b.round().copy(out(0), in(0));
    return std::move(b).build();
  }
  const Expr r = b.rank(), left = (r - 1) % p, right = (r + 1) % p;
  const Expr second = (r - 2) % p;
  b.round().send(in(left), right).receive_reduce(out(second), in(second), left);
  b.loop(p - 2, [&](const Expr& s) {
    const Expr next = (r - s - 3) % p;
    b.round().send(out((r - s - 2) % p), right).receive_reduce(out(next), in(next), left);
  });
  b.loop(p - 1, [&](const Expr& s) {
    b.round().send(out((r - s) % p), right).receive(out((r - s - 1) % p), left);
  });
  return std::move(b).build();
}

}  // namespace

constinit const AlgorithmInfo kAllreduceRing = {
    Collective::kAllreduce,
    "ring",
    "sums travel around one ring; best for large messages",
    "2(p-1)a + 2(p-1)/p nb",
    "[Patarasuk09]",
    "rank_count >= 1",
    "",
    kRanksMax,
    &ring_allreduce};

}  // namespace farandole
