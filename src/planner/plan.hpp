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
  std::size_t hierarchies = 4;  // how many of the best take part
  HierarchySearch search;
  /// Rows of delegates that reach the ranks and take part.
  std::vector<const AlgorithmInfo*> delegates = {};
};

/// All candidates for a call over these levels, fastest first: every algorithm of the collective
/// that takes this many ranks (`one_shot` for up to 2 KiB in shared memory), trees of radix 2, 4
/// and 8, pipelines of the best number of pieces, and the best hierarchies. Equally fast ones come
/// in the order of the algorithm table, so that all ranks that give the same arguments get the same
/// list. `bytes` as predict() counts them.
std::vector<Candidate> plan(Collective collective, double bytes, Levels& levels,
                            const PlanOptions& options = {});

/// The choice for a call: among candidates within 7 % of the fastest, the one that loads the
/// network least, and among those the fastest. `direct` within a host loads it least, since it
/// reads shared memory in place: on 2 ranks it took 205 us for 4 MiB in allgather and 326 us in
/// alltoall, where the ring took 320 and pairwise exchange 472. Next come all others that use only
/// shared memory. Next, if most of the time is spent on the wires, come rings, and chains between
/// hosts. Layers, two trees and `direct` between hosts come last. `candidates` is what plan()
/// returned, and not empty.
const Candidate& choose(const std::vector<Candidate>& candidates);

/// Pieces of a pipeline `depth` rounds deep, a power of two: about sqrt(n depth b / a), from 1 to
/// 256. For a chain, [Xin20] gives c = sqrt(n a / ((p - 2) b)) as the bytes of one piece.
std::int64_t best_pieces(double bytes, std::int64_t depth, Levels& levels);

}  // namespace farandole
