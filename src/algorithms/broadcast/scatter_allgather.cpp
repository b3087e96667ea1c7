// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <bit>

#include "algorithms/table.hpp"
#include "schedule/builder.hpp"

namespace farandole {
namespace {

// Scatter and allgather: a binomial tree scatters the message, a ring gathers it everywhere.
// Counted from the root, rank v gets chunk v. The ring ends before the root, which has all chunks.
//
//   chunks   rank_count
//   rounds   ceil(lg p) + p - 1, and a local one at the root
//   sent     up to 2 (p - 1) / p of the bytes, by the root
//   scratch  none; works in place
//   needs    rank_count <= 2048; any transport
//   source   [Thakur05] §4.3
Schedule scatter_allgather_broadcast(const AlgorithmParameters& parameters) {
  const std::int64_t p = parameters.rank_count, root = parameters.root;
  ScheduleBuilder b(Collective::kBroadcast, "scatter_allgather", p, p);
  b.root(root);
  if (p == 1) {
    b.round().copy(out(0), in(0));
    return std::move(b).build();
  }
  const Expr r = b.rank(), v = (r - root) % p;
  auto d = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(p - 1)));
  for (; d >= 1; d /= 2) {
    // A rank whose number is a multiple of 2 d sends half of what it has to the rank d above.
    RoundBuilder round = b.round();
    const Expr to = (r + d) % p, count = min(d, p - d - v);
    round.when(v, 0, 1).send(in(d, count), to);
    round.always().when(v, 1, p - d).when(v % (2 * d), 0, 1).send(out(v + d, count), to);
    round.always().when(v % (2 * d), d, d + 1).receive(out(v, min(d, p - v)), (r - d) % p);
  }
  const Expr left = (r - 1) % p, right = (r + 1) % p;
  b.loop(p - 1, [&](const Expr& s) {
    const Expr chunk = (v - s) % p;
    RoundBuilder round = b.round();
    // The copy follows the send, since in place it would write what is being sent.
    round.when(v, 0, 1).send(in(chunk), right).then().copy(out(chunk), in(chunk));
    round.always().when(v, 1, p - 1).send(out(chunk), right);
    round.always().when(v, 1, p).receive(out((v - s - 1) % p), left);
  });
  b.round().when(v, 0, 1).copy(out(1), in(1));
  return std::move(b).build();
}

}  // namespace

constinit const AlgorithmInfo kBroadcastScatterAllgather = {
    Collective::kBroadcast,
    "scatter_allgather",
    "binomial scatter, ring allgather; for middle sizes",
    "(lg p + p-1)a + 2(p-1)/p nb",
    "[Thakur05]",
    "rank_count <= 2048",
    "",
    2048,
    &scatter_allgather_broadcast};

}  // namespace farandole
