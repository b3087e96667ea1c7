// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "farandole/result.hpp"
#include "farandole/types.hpp"
#include "planner/levels.hpp"

// The cost of an algorithm in closed form. A rank enters the next round of its schedule when all
// its actions of the current one are finished. A message starts when both its ends have entered the
// round, and takes alpha + bytes * beta. Messages of one round share the ports and links that they
// use, so that `direct` pays alpha once and the sum of the bytes. Chunks are real numbers,
// bytes / chunk_count. Under that model, on Levels::uniform(), every formula is exact.
//
// On a machine, the pattern of a round decides how far its messages go, and the costs that
// machine.hpp adds to alpha and beta are added: a call at the start of a stage, the part of a
// message that fills a pipeline, efficiency, measured rates of rings, several messages at once,
// reductions and copies. If all messages of a round are alike, the result equals that of the
// simulator; tests/agreement says where this holds, and how far off the other cases are:
//
//   two trees        with fewer than 8 pieces up to 15 % above, since a message counts as slow as
//                    the busier port of its round; on several levels down to half, since edges
//                    cross hosts irregularly
//   folded ranks     p not a power of two, on several levels: a factor of 2, for halving 3
//   mixed distances  direct or pairwise with reductions: up to 10 % above, a ring in both
//                    directions 30 %; chains and leaders of two levels with calls that differ by
//                    hop: 25 %
//   copies           those that only some ranks make are left out
namespace farandole {

/// Rounds of one phase of an algorithm that go equally far. All in seconds.
struct CostStage {
  std::string name;  // "reduce-scatter layer 2"
  Hop hop = Hop::kHost;
  double alpha = 0;  // start-up of messages
  double bytes = 0;  // on the wires
  double call = 0;   // of a library or a kernel
  double fill = 0;   // of a pipeline
  double local = 0;  // reductions and copies
  double seconds() const { return alpha + bytes + call + fill + local; }
};

struct Cost {
  std::vector<CostStage> stages;  // empty for one rank, which sends nothing
  double seconds() const;
};

/// Predicts one call. `bytes` is the size of a rank's larger buffer, if there is a root of the
/// root's: the input of allreduce, reduce, broadcast, reducescatter and scatter, the output of
/// allgather and gather, either buffer of alltoall. The root is rank 0.
///
/// Errors    kInvalidArgument as parse_spec(), or naming an algorithm that has no formula.
Result<Cost> predict(Collective collective, std::string_view spec, double bytes, Levels& levels);

}  // namespace farandole
