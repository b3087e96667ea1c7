// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "algorithms/folding.hpp"
#include "algorithms/table.hpp"

namespace farandole {
namespace {

// Recursive halving: ranks m / 2 apart split all chunks, then ranks m / 4 apart split half of them,
// and so on, where m is the power of two that folding leaves. A position stands for one chunk, or
// for two if it folds; the second one goes to its partner in the end.
//
//   chunks   rank_count, of which one is the output
//   rounds   lg m; where rank_count is no power of two, 3 more, of which one is local
//   sent     (m - 1) / m of the input bytes, per rank; all of them by ranks that are folded in
//   scratch  m / 2 slots, or rank_count where that is no power of two; works in place
//   needs    rank_count >= 1; any transport
//   source   [Thakur05] §4.2
Schedule halving_reducescatter(const AlgorithmParameters& parameters) {
  const std::int64_t p = parameters.rank_count;
  ScheduleBuilder b(Collective::kReducescatter, "halving", p, p);
  const Folding fold(p);
  const std::int64_t m = fold.positions();
  const Expr r = b.rank(), v = fold.position();
  if (p == 1) {
    b.round().copy(out(0), in(0));
    return std::move(b).build();
  }
  b.scratch_slots(fold.folds() ? p : m / 2);
  if (fold.folds()) {
    RoundBuilder round = b.round();
    fold.lower(round).receive_reduce(scratch(0, 0, p), in(0, p), fold.partner_above());
    fold.upper(round).send(in(0, p), fold.partner_below());
    fold.unpaired(round).copy(scratch(0, 0, p), in(0, p));
  }
  for (std::int64_t d = m / 2; d >= 1; d /= 2) {
    // The chunks of positions [own, own + d) stay here, those of the peer's half are sent.
    const Expr own = v / d * d, given = (v ^ d) / d * d, peer = fold.rank_at(v ^ d);
    const auto chunks = [&](const Expr& at, bool kept) {
      const Expr first = fold.first_chunk(at);
      const Expr count = fold.folds() ? fold.first_chunk(at + d) - first : Expr(d);
      if (fold.folds()) return scratch(first, first, count);
      if (d == m / 2 && !kept) return in(first, count);
      return scratch(first % (m / 2), first, count);
    };
    const bool last = d == 1 && !fold.folds();
    if (!fold.folds()) b.rotation({2, d, d, d == m / 2 ? 0 : d});
    RoundBuilder round = b.round();
    fold.active(round)
        .send(chunks(given, false), peer)
        .receive_reduce(last ? out(0) : chunks(own, true), chunks(own, false), peer);
  }
  if (fold.folds()) {
    RoundBuilder round = b.round();
    fold.lower(round).send(scratch(r + 1, r + 1), fold.partner_above()).copy(out(0), scratch(r, r));
    fold.upper(round).receive(out(0), fold.partner_below());
    fold.unpaired(round).copy(out(0), scratch(r, r));
  }
  return std::move(b).build();
}

}  // namespace

constinit const AlgorithmInfo kReducescatterHalving = {
    Collective::kReducescatter,
    "halving",
    "halves over halving distances; best for small messages",
    "lg p a + (p-1)/p nb",
    "[Thakur05]",
    "rank_count >= 1",
    "",
    kRanksMax,
    &halving_reducescatter};

}  // namespace farandole
