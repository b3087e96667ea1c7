// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "algorithms/table.hpp"
#include "schedule/builder.hpp"

namespace farandole {
namespace {

// Ring allgather: in each step a rank passes on what it received in the last.
//
//   chunks   rank_count
//   rounds   rank_count - 1
//   sent     (rank_count - 1) / rank_count of the output bytes, per rank
//   scratch  none; works in place
//   needs    rank_count >= 1; any transport
//   source   [Thakur05] §4.1
Schedule ring_allgather(const AlgorithmParameters& parameters) {
  const std::int64_t p = parameters.rank_count;
  ScheduleBuilder b(Collective::kAllgather, "ring", p, p);
  b.rotation({p, 1, 1, 0});
  b.stage("ring", p);
  const Expr r = b.rank(), left = (r - 1) % p, right = (r + 1) % p;
  if (p == 1) {
    b.round().copy(out(0), in(0));
    return std::move(b).build();
  }
  // The copy follows the send, since in place it would write what is being sent.
  b.round().send(in(0), right).then().copy(out(r), in(0)).receive(out(left), left);
  b.loop(p - 2, [&](const Expr& s) {
    b.round().send(out((r - s - 1) % p), right).receive(out((r - s - 2) % p), left);
  });
  return std::move(b).build();
}

}  // namespace

constinit const AlgorithmInfo kAllgatherRing = {
    Collective::kAllgather,
    "ring",
    "chunks travel around one ring; best for large messages",
    "(p-1)a + (p-1)/p nb",
    "[Thakur05]",
    "rank_count >= 1",
    "",
    kRanksMax,
    &ring_allgather};

}  // namespace farandole
