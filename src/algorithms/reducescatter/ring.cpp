// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "algorithms/table.hpp"
#include "schedule/builder.hpp"

namespace farandole {
namespace {

// Ring reducescatter: each chunk's partial sum travels around the ring and ends at its owner.
//
//   chunks   rank_count, of which one is the output
//   rounds   rank_count - 1
//   sent     (rank_count - 1) / rank_count of the input bytes, per rank
//   scratch  2 slots, one received while the other is sent; works in place
//   needs    rank_count >= 1; any transport
//   source   [Thakur05] §4.2, [Patarasuk09]
Schedule ring_reducescatter(const AlgorithmParameters& parameters) {
  const std::int64_t p = parameters.rank_count;
  ScheduleBuilder b(Collective::kReducescatter, "ring", p, p);
  b.rotation({p, 1, 1, 0});
  b.stage("ring", p);
  if (p == 1) {
    b.round().copy(out(0), in(0));
    return std::move(b).build();
  }
  const Expr r = b.rank(), left = (r - 1) % p, right = (r + 1) % p;
  if (p == 2) {
    b.round().send(in(left), right).receive_reduce(out(0), in(r), left);
    return std::move(b).build();
  }
  b.scratch_slots(2);
  const auto passing = [&](const Expr& s) { return scratch(s % 2, (r - s - 2) % p); };
  const auto own = [&](const Expr& s) { return in((r - s - 2) % p); };
  b.round().send(in(left), right).receive_reduce(passing(0), own(0), left);
  b.loop(p - 3, [&](const Expr& s) {
    b.round().send(passing(s), right).receive_reduce(passing(s + 1), own(s + 1), left);
  });
  b.round().send(passing(p - 3), right).receive_reduce(out(0), in(r), left);
  return std::move(b).build();
}

}  // namespace

constinit const AlgorithmInfo kReducescatterRing = {
    Collective::kReducescatter,
    "ring",
    "sums travel around one ring; best for large messages",
    "(p-1)a + (p-1)/p nb",
    "[Thakur05]",
    "rank_count >= 1",
    "",
    kRanksMax,
    &ring_reducescatter};

}  // namespace farandole
