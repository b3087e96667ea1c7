// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "algorithms/registry.hpp"
#include "farandole/types.hpp"
#include "planner/cost.hpp"
#include "planner/factorizations.hpp"

namespace farandole {

/// One way to run a call, as build_schedule() reads it, and what is predicted for it.
struct Candidate {
  std::string spec;  // "hierarchical:layers=4ring/8ring"
  double seconds = 0;
  Cost cost;
  bool in_memory = false;  // no message leaves the memory that its host's ranks share
};

struct PlanOptions {
  std::size_t hierarchies = 4;  // the best so many take part
  HierarchySearch search;
  /// Rows of delegates that reach the ranks and take part.
  std::vector<const AlgorithmInfo*> delegates = {};
};

/// All that can run a call over these levels, fastest first: every algorithm of the collective that
/// takes so many ranks (`one_shot` for up to 2 KiB in shared memory), trees of radix 2, 4 and 8,
/// pipelines of the best number of pieces, and the best hierarchies. Equally fast ones in the order
/// of the algorithm table, so that all ranks that give the same arguments get the same list.
/// `bytes` as predict() counts them.
std::vector<Candidate> plan(Collective collective, double bytes, Levels& levels,
                            const PlanOptions& options = {});

/// What a call takes: of those at most 7 % slower than the fastest the one that asks least of the
/// network, and of these the fastest. Least asks `direct` within a host, since it reads what lies
/// in shared memory where it is: at 2 ranks 4 MiB took it 205 us in allgather and 326 us in
/// alltoall, where the ring took 320 and pairwise exchange 472. Then, through shared memory,
/// whatever is fastest. Then, where it is bytes that take the time, rings, and chains between
/// hosts; most ask layers, two trees and `direct` between hosts. `candidates` as plan() gives them,
/// not empty.
const Candidate& choose(const std::vector<Candidate>& candidates);

/// Pieces of a pipeline `depth` rounds deep, a power of two: about sqrt(n depth b / a), from 1 to
/// 256. For a chain [Xin20] has c = sqrt(n a / ((p - 2) b)) for the bytes of one.
std::int64_t best_pieces(double bytes, std::int64_t depth, Levels& levels);

}  // namespace farandole
