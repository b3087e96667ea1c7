// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "algorithms/folding.hpp"
#include "algorithms/halving.hpp"
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
  const Halving halving(m, fold.position());
  fold.in_first(b, m);
  for (int k = 0; k < halving.exchanges(); ++k) {
    if (!fold.folds()) b.rotation({2, std::int64_t{1} << k, halving.half(k), 0});
    const std::int64_t half = halving.half(k);
    const auto source = [&](const Expr& at) {
      return k == 0 ? fold.input(at, half) : out(at, half);
    };
    const Expr own = halving.own(k), given = halving.given(k), peer = fold.rank_at(halving.peer(k));
    RoundBuilder round = b.round();
    fold.active(round).send(source(given), peer);
    if (!fold.folds()) {
      round.receive_reduce(out(own, half), source(own), peer);
      continue;
    }
    // With folding, ranks are not alike, so the proof cannot go by symmetry. It need not: with the
    // lower position's operand first, all chunks have the same order of operands.
    fold.active(round).when(halving.bit(k), 0, 1).receive_reduce(out(own, half), source(own), peer);
    fold.active(round)
        .when(halving.bit(k), 1, 2)
        .receive_reduce_first(out(own, half), source(own), peer);
  }
  for (int k = halving.exchanges() - 1; k >= 0; --k) {
    const std::int64_t half = halving.half(k);
    const Expr own = halving.own(k), given = halving.given(k), peer = fold.rank_at(halving.peer(k));
    RoundBuilder round = b.round();
    fold.active(round).send(out(own, half), peer).receive(out(given, half), peer);
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
