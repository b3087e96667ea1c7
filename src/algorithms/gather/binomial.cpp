// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "algorithms/subtree.hpp"
#include "algorithms/table.hpp"
#include "schedule/builder.hpp"

namespace farandole {
namespace {

// Binomial gather: counted from the root, rank v collects the chunks of v to v + 2^k - 1 from its
// growing subtree, slot j of its scratch for v + j, and sends them to v - 2^k. What the root
// receives goes directly to its place.
//
//   chunks   rank_count at the root
//   rounds   ceil(lg p)
//   sent     up to half of all chunks
//   scratch  at most rank_count / 2 slots, at inner ranks; works in place
//   needs    rank_count >= 1; 2 lanes
//   source   [Thakur05] §4.4
Schedule binomial_gather(const AlgorithmParameters& parameters) {
  const std::int64_t p = parameters.rank_count, root = parameters.root;
  ScheduleBuilder b(Collective::kGather, "binomial", p, p);
  b.root(root);
  const Expr r = b.rank(), v = (r - root) % p;
  if (p == 1) b.round().copy(out(0), in(0));
  b.scratch_slots(Subtree::chunks_max(p));
  for (std::int64_t d = 1; d < p; d *= 2) {
    const Subtree child(p, root, d);
    const Expr parent = (r - d) % p;
    RoundBuilder round = b.round();
    if (d == 1) {
      round.when(v, 0, 1).copy(out(root), in(0));
      round.always().when(v, 2, p).when(v % 2, 0, 1).copy(scratch(0, 0), in(0));
      round.always().when(v % 2, 1, 2).send(in(0), parent);
    } else {
      round.when(v, d, d + 1).send(scratch(0, 0, child.count), root);
      if (child.wrapped > 0) {
        round.lane(1).send(scratch(child.count, 0, child.wrapped), root).lane(0);
      }
      round.always().when(v, 2 * d, p).when(v % (2 * d), d, d + 1);
      round.send(scratch(0, 0, min(d, p - v)), parent);
    }
    round.always().when(v, 0, 1).receive(out(child.first, child.count), (root + d) % p);
    if (child.wrapped > 0) {
      round.lane(1).receive(out(0, child.wrapped), (root + d) % p).lane(0);
    }
    round.always().when(v, 2 * d, p - d).when(v % (2 * d), 0, 1);
    round.receive(scratch(d, 0, min(d, p - d - v)), (r + d) % p);
  }
  return std::move(b).build();
}

}  // namespace

constinit const AlgorithmInfo kGatherBinomial = {
    Collective::kGather,
    "binomial",
    "subtrees collect and hand on; best for small messages",
    "lg p a + (p-1) nb",
    "[Thakur05]",
    "rank_count >= 1",
    "",
    kRanksMax,
    &binomial_gather};

}  // namespace farandole
