// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "algorithms/table.hpp"
#include "schedule/builder.hpp"

namespace farandole {
namespace {

// Binomial broadcast: in round k, each of the 2^k ranks that have the message passes it on to
// the rank 2^k further, counted from the root.
//
//   chunks   1
//   rounds   ceil(lg p)
//   sent     up to ceil(lg p) times the bytes, by the root
//   scratch  none; works in place
//   needs    rank_count >= 1; any transport
//   source   [Thakur05] §4.3, [Xin20] eq. 3
Schedule binomial_broadcast(const AlgorithmParameters& parameters) {
  const std::int64_t p = parameters.rank_count, root = parameters.root;
  ScheduleBuilder b(Collective::kBroadcast, "binomial", p, 1);
  b.root(root);
  const Expr r = b.rank(), v = (r - root) % p;
  RoundBuilder first = b.round();
  first.when(v, 0, 1);
  // The copy follows the send, since in place it would write what is being sent.
  if (p > 1) first.send(in(0), (r + 1) % p).then();
  first.copy(out(0), in(0));
  if (p > 1) first.always().when(v, 1, 2).receive(out(0), root);
  for (std::int64_t d = 2; d < p; d *= 2) {
    RoundBuilder round = b.round();
    round.when(v, 0, std::min(d, p - d)).send(out(0), (r + d) % p);
    round.always().when(v, d, std::min(2 * d, p)).receive(out(0), (r - d) % p);
  }
  return std::move(b).build();
}

}  // namespace

constinit const AlgorithmInfo kBroadcastBinomial = {Collective::kBroadcast,
                                                    "binomial",
                                                    "a tree of radix 2; best for small messages",
                                                    "lg p (a + nb)",
                                                    "[Thakur05]",
                                                    "rank_count >= 1",
                                                    "",
                                                    kRanksMax,
                                                    &binomial_broadcast};

}  // namespace farandole
