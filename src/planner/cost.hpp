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
// efficiency, measured rates of rings, more messages at once, reductions and copies.
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
