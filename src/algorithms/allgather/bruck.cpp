// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "algorithms/table.hpp"
#include "schedule/builder.hpp"

namespace farandole {
namespace {

// Bruck's allgather: slot j of scratch is for the chunk from j ranks above; a rank that has the
// first d of them gets the next d from the rank d above.
//
//   chunks   rank_count
//   rounds   ceil(lg p) with messages, and p local ones of one copy each
//   sent     (p - 1) / p of the output bytes, per rank
//   scratch  rank_count slots; works in place
//   needs    rank_count >= 1; any transport
//   source   Bruck, Ho, Kipnis, Upfal, Weathersby 1997; [Thakur05] §4.1
Schedule bruck_allgather(const AlgorithmParameters& parameters) {
  const std::int64_t p = parameters.rank_count;
  ScheduleBuilder b(Collective::kAllgather, "bruck", p, p);
  b.rotation({p, 1, 1, 0});
  const Expr r = b.rank();
  if (p == 1) {
    b.round().copy(out(0), in(0));
    return std::move(b).build();
  }
  b.scratch_slots(p);
  b.round().copy(scratch(0, 0), in(0));
  for (std::int64_t d = 1; d < p; d *= 2) {
    const std::int64_t count = std::min(d, p - d);
    b.round().send(scratch(0, 0, count), (r - d) % p).receive(scratch(d, 0, count), (r + d) % p);
  }
  b.loop(p, [&](const Expr& s) { b.round().copy(out((r + s) % p), scratch(s, 0)); });
  return std::move(b).build();
}

}  // namespace

constinit const AlgorithmInfo kAllgatherBruck = {
    Collective::kAllgather,
    "bruck",
    "doubling distances for any number of ranks; best for small messages",
    "lg p a + (p-1)/p nb",
    "Bruck et al. 1997",
    "rank_count >= 1",
    "",
    kRanksMax,
    &bruck_allgather};

}  // namespace farandole
