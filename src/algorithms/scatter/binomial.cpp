// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "algorithms/subtree.hpp"
#include "algorithms/table.hpp"
#include "schedule/builder.hpp"

namespace farandole {
namespace {

// Binomial scatter, the binomial gather backwards: counted from the root, rank v holds the chunks
// of v to v + 2 d - 1, slot j of its scratch for v + j, and hands the upper half to v + d.
//
//   chunks   rank_count at the root
//   rounds   ceil(lg p), and a local one at inner ranks
//   sent     up to all chunks but one, by the root
//   scratch  at most rank_count / 2 slots, at inner ranks; works in place
//   needs    rank_count >= 1; 2 lanes
//   source   [Thakur05] §4.3
Schedule binomial_scatter(const AlgorithmParameters& parameters) {
  const std::int64_t p = parameters.rank_count, root = parameters.root;
  ScheduleBuilder b(Collective::kScatter, "binomial", p, p);
  b.root(root);
  const Expr r = b.rank(), v = (r - root) % p;
  b.scratch_slots(Subtree::chunks_max(p));
  for (std::int64_t d = Subtree::distance_max(p); d >= 1; d /= 2) {
    const Subtree child(p, root, d);
    const Expr parent = (r - d) % p;
    RoundBuilder round = b.round();
    round.when(v, 0, 1).send(in(child.first, child.count), (root + d) % p);
    if (child.wrapped > 0) round.lane(1).send(in(0, child.wrapped), (root + d) % p).lane(0);
    round.always().when(v, 2 * d, p - d).when(v % (2 * d), 0, 1);
    round.send(scratch(d, 0, min(d, p - d - v)), (r + d) % p);
    if (d == 1) {
      round.always().when(v % 2, 1, 2).receive(out(0), parent);
      continue;
    }
    round.always().when(v, d, d + 1).receive(scratch(0, 0, child.count), root);
    if (child.wrapped > 0) {
      round.lane(1).receive(scratch(child.count, 0, child.wrapped), root).lane(0);
    }
    round.always().when(v, 2 * d, p).when(v % (2 * d), d, d + 1);
    round.receive(scratch(0, 0, min(d, p - v)), parent);
  }
  RoundBuilder last = b.round();
  last.when(v, 0, 1).copy(out(0), in(root));
  if (p > 2) last.always().when(v, 2, p).when(v % 2, 0, 1).copy(out(0), scratch(0, 0));
  return std::move(b).build();
}

}  // namespace

constinit const AlgorithmInfo kScatterBinomial = {
    Collective::kScatter,
    "binomial",
    "subtrees take and hand on; best for small messages",
    "lg p a + (p-1) nb",
    "[Thakur05]",
    "rank_count >= 1",
    "",
    kRanksMax,
    &binomial_scatter};

}  // namespace farandole
