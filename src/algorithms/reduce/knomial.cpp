// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "algorithms/table.hpp"
#include "algorithms/tree.hpp"

namespace farandole {
namespace {

// K-nomial reduce, the k-nomial broadcast backwards: on level j, ranks that are done send their sum
// to the rank that is 1 to k - 1 times k^j below, counted from the root. That rank adds the sums up
// in turn.
//
//   chunks   1
//   rounds   ceil(log_k p)
//   sent     the bytes once, per rank
//   scratch  none; works in place
//   needs    rank_count >= 1; radix 2 to 8, 4 by default; radix - 1 lanes
//   source   [Thakur05] §4.4
Schedule tree_reduce(const char* name, std::int64_t radix, const AlgorithmParameters& parameters) {
  const std::int64_t p = parameters.rank_count;
  ScheduleBuilder b(Collective::kReduce, name, p, 1);
  b.root(parameters.root);
  if (p == 1) b.round().copy(out(0), in(0));
  const auto tree = KnomialTree::over(p, radix, parameters.root);
  const std::vector<std::int64_t> levels = tree.levels();
  for (auto d = levels.rbegin(); d != levels.rend(); ++d) {
    RoundBuilder round = b.round();
    tree.up(round, *d, 1);
  }
  return std::move(b).build();
}

Schedule binomial_reduce(const AlgorithmParameters& parameters) {
  return tree_reduce("binomial", 2, parameters);
}

Schedule knomial_reduce(const AlgorithmParameters& parameters) {
  return tree_reduce("knomial", parameters.radix > 0 ? parameters.radix : kDefaultRadix,
                     parameters);
}

}  // namespace

constinit const AlgorithmInfo kReduceBinomial = {Collective::kReduce,
                                                 "binomial",
                                                 "a tree of radix 2; best for small messages",
                                                 "lg p (a + nb)",
                                                 "[Thakur05]",
                                                 "rank_count >= 1",
                                                 "",
                                                 kRanksMax,
                                                 &binomial_reduce};

constinit const AlgorithmInfo kReduceKnomial = {
    Collective::kReduce,
    "knomial",
    "a tree of radix k; fewer levels, more messages at once",
    "log_k p (a + (k-1) nb)",
    "[Thakur05]",
    "rank_count >= 1",
    "radix",
    kRanksMax,
    &knomial_reduce};

}  // namespace farandole
