// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "algorithms/folding.hpp"
#include "algorithms/halving.hpp"
#include "algorithms/table.hpp"

namespace farandole {
namespace {

// Rabenseifner's reduce: recursive halving scatters the sums, and a binomial tree gathers them at
// the root, the same way back. Ranks are counted from the root; m is the power of two that folding
// leaves.
//
//   chunks   m
//   rounds   2 lg m, one more where rank_count is no power of two
//   sent     up to 2 (m - 1) / m of the bytes, per rank; once by ranks that are folded in
//   scratch  none; works in place
//   needs    rank_count >= 1; any transport
//   source   [Thakur05] §4.4
Schedule rabenseifner_reduce(const AlgorithmParameters& parameters) {
  const std::int64_t p = parameters.rank_count;
  const Folding fold(p, parameters.root);
  const std::int64_t m = fold.positions();
  ScheduleBuilder b(Collective::kReduce, "rabenseifner", p, m);
  b.root(parameters.root);
  if (p == 1) {
    b.round().copy(out(0), in(0));
    return std::move(b).build();
  }
  const Halving halving(m, fold.position());
  fold.in_first(b, m);
  for (int k = 0; k < halving.exchanges(); ++k) {
    const std::int64_t half = halving.half(k);
    const auto source = [&](const Expr& at) {
      return k == 0 ? fold.input(at, half) : out(at, half);
    };
    const Expr own = halving.own(k), given = halving.given(k), peer = fold.rank_at(halving.peer(k));
    RoundBuilder round = b.round();
    fold.active(round).send(source(given), peer).receive_reduce(out(own, half), source(own), peer);
  }
  for (int k = halving.exchanges() - 1; k >= 0; --k) {
    // Positions below 2^(k+1) still hold something; the upper half of them sends it down.
    const std::int64_t half = halving.half(k), d = std::int64_t{1} << k;
    const Expr peer = fold.rank_at(halving.peer(k));
    RoundBuilder round = b.round();
    fold.active(round).when(fold.position(), 0, d).receive(out(halving.given(k), half), peer);
    fold.active(round).when(fold.position(), d, 2 * d).send(out(halving.own(k), half), peer);
  }
  return std::move(b).build();
}

}  // namespace

constinit const AlgorithmInfo kReduceRabenseifner = {
    Collective::kReduce,
    "rabenseifner",
    "halving reduce-scatter, binomial gather; for large messages",
    "2 lg p a + 2(p-1)/p nb",
    "[Thakur05]",
    "rank_count >= 1",
    "",
    kRanksMax,
    &rabenseifner_reduce};

}  // namespace farandole
