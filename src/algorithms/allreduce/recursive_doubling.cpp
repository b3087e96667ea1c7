// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "algorithms/folding.hpp"
#include "algorithms/table.hpp"

namespace farandole {
namespace {

// Ranks whose positions differ in `bit` exchange `source`; both compute target = lower (+)
// higher, where the lower one has the bit clear, so that their results are the same expression.
void exchange(ScheduleBuilder& b, const Folding& fold, std::int64_t bit, const Span& target,
              const Span& source) {
  const Expr peer = fold.rank_at(fold.position() ^ bit), side = fold.position() / bit % 2;
  RoundBuilder round = b.round();
  fold.active(round).send(source, peer);
  fold.active(round).when(side, 0, 1).receive_reduce(target, source, peer);
  fold.active(round).when(side, 1, 2).receive_reduce_first(target, source, peer);
}

// The same with source = target in place: receives into scratch, and reduces a round later.
void exchange_through(const Span& kept, ScheduleBuilder& b, const Folding& fold, std::int64_t bit,
                      const Span& target, const Span& source) {
  const Expr peer = fold.rank_at(fold.position() ^ bit), side = fold.position() / bit % 2;
  RoundBuilder transfer = b.round();
  fold.active(transfer).send(source, peer).receive(kept, peer);
  RoundBuilder reduction = b.round();
  fold.active(reduction).when(side, 0, 1).reduce(target, source, kept);
  fold.active(reduction).when(side, 1, 2).reduce(target, kept, source);
}

// Recursive doubling: in exchange k, ranks 2^k apart swap all they have summed so far.
//
//   chunks   1
//   rounds   floor(lg p), one more where that is odd, two more where p is no power of two
//   sent     floor(lg p) times the bytes, per rank; once more by ranks that fold
//   scratch  1 slot; works in place
//   needs    rank_count >= 1; any transport
//   source   [Thakur05] §4.5
Schedule recursive_doubling_allreduce(const AlgorithmParameters& parameters) {
  const std::int64_t p = parameters.rank_count;
  ScheduleBuilder b(Collective::kAllreduce, "recursive_doubling", p, 1);
  if (p == 1) {
    b.round().copy(out(0), in(0));
    return std::move(b).build();
  }
  b.scratch_slots(1);
  const Folding fold(p);
  fold.in_first(b, 1);
  // What is sent must not be written in the same round, so the sum moves from `out` to scratch and
  // back; if the number of exchanges is odd, the first takes two rounds.
  const Span kept = scratch(0, 0);
  Span source = fold.input(0, 1);
  std::int64_t bit = 1;
  if (std::countr_zero(static_cast<std::uint64_t>(fold.positions())) % 2 == 1) {
    exchange_through(kept, b, fold, bit, out(0), source);
    source = out(0);
    bit = 2;
  }
  for (; bit < fold.positions(); bit *= 4, source = out(0)) {
    exchange(b, fold, bit, kept, source);
    exchange(b, fold, 2 * bit, out(0), kept);
  }
  fold.out_last(b, 1);
  return std::move(b).build();
}

}  // namespace

constinit const AlgorithmInfo kAllreduceRecursiveDoubling = {
    Collective::kAllreduce,
    "recursive_doubling",
    "all data exchanged over doubling distances; best for small messages",
    "lg p (a + nb)",
    "[Thakur05]",
    "rank_count >= 1",
    "",
    kRanksMax,
    &recursive_doubling_allreduce};

}  // namespace farandole
