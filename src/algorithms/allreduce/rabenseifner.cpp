// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "algorithms/allreduce/folding.hpp"
#include "algorithms/table.hpp"

namespace farandole {
namespace {

// Rabenseifner's allreduce: recursive halving scatters the sums, recursive doubling gathers
// them. m is the power of two that folding leaves.
//
//   chunks   m
//   rounds   2 lg m, two more where rank_count is no power of two
//   sent     2 (m - 1) / m of the bytes, per rank; once more by ranks that fold
//   scratch  none; works in place
//   needs    rank_count >= 1; any transport
//   source   [Thakur05] §4.5
Schedule rabenseifner_allreduce(const AlgorithmParameters& parameters) {
  const std::int64_t p = parameters.rank_count;
  const Folding fold(p);
  const std::int64_t m = fold.positions();
  ScheduleBuilder b(Collective::kAllreduce, "rabenseifner", p, m);
  if (p == 1) {
    b.round().copy(out(0), in(0));
    return std::move(b).build();
  }
  const Expr v = fold.position();
  // Of the chunks that a rank and its peer at a distance share, each keeps its own half: as many
  // as the distance, from its position rounded down.
  const auto peer_at = [&](std::int64_t distance) { return fold.rank_at(v ^ distance); };
  const auto own = [&](std::int64_t distance) { return v / distance * distance; };
  const auto peers = [&](std::int64_t distance) { return (v ^ distance) / distance * distance; };

  fold.in_first(b, m);
  for (std::int64_t d = m / 2; d >= 1; d /= 2) {
    const bool first = d == m / 2;
    const auto source = [&](const Expr& at) { return first ? fold.input(at, d) : out(at, d); };
    RoundBuilder round = b.round();
    fold.active(round)
        .send(source(peers(d)), peer_at(d))
        .receive_reduce(out(own(d), d), source(own(d)), peer_at(d));
  }
  for (std::int64_t d = 1; d < m; d *= 2) {
    RoundBuilder round = b.round();
    fold.active(round).send(out(own(d), d), peer_at(d)).receive(out(peers(d), d), peer_at(d));
  }
  fold.out_last(b, m);
  return std::move(b).build();
}

}  // namespace

constinit const AlgorithmInfo kAllreduceRabenseifner = {
    Collective::kAllreduce,
    "rabenseifner",
    "halving reduce-scatter, doubling allgather; for middle sizes",
    "2 lg p a + 2(p-1)/p nb",
    "[Thakur05]",
    "rank_count >= 1",
    "",
    kRanksMax,
    &rabenseifner_allreduce};

}  // namespace farandole
