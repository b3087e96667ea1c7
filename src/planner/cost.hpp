// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "farandole/result.hpp"
#include "farandole/types.hpp"
#include "planner/levels.hpp"

// What an algorithm costs, by closed forms. A rank enters the next round of its schedule when all
// its actions of this one are finished. A message starts when both its ends have entered, and takes
// alpha + bytes * beta; messages of one round share the ports and links that they use, so that
// `direct` pays alpha once and the sum of the bytes. Chunks are real numbers, bytes / chunk_count.
// Under that model, on Levels::uniform(), every formula is exact.
//
// On a machine each round goes as far as its pattern says, and what machine.hpp adds to alpha and
// beta is added: a call at the start of a stage, the part of a message that fills a pipeline,
// efficiency, measured rates of rings, more messages at once, reductions and copies. Where all
// messages of a round are alike that is what the simulator finds; tests/agreement says where, and
// how far off the rest is:
//
//   two trees        in fewer than 8 pieces up to 15 % above, since a message counts as slow as the
//                    busier port of its round; on several levels down to half, since edges cross
//                    hosts by no rule
//   folded ranks     p no power of two, on several levels: a factor of 2, halving 3
//   mixed distances  direct or pairwise with reductions: up to 10 % above, a ring both ways 30 %;
//                    chains and leaders of two levels with calls that differ by hop: 25 %
//   copies           that only some ranks make are left out
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
  std::vector<CostStage> stages;  // empty: one rank has nobody to send to
  double seconds() const;
};

/// Predicts one call. `bytes` is of the larger side of a rank, as for the root of a gather: what
/// allreduce, reduce and broadcast take, the input of reducescatter and scatter, the output of
/// allgather and gather, either of alltoall. The root is rank 0.
/// Errors    kInvalidArgument as parse_spec(), or naming an algorithm that has no formula.
Result<Cost> predict(Collective collective, std::string_view spec, double bytes, Levels& levels);

}  // namespace farandole
