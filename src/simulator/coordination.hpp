// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "farandole/result.hpp"

namespace farandole {

/// What a message costs between any two ranks: the sender is busy for overhead + bytes / rate, the
/// message arrives `latency` later, and the receiver is busy as long as the sender was.
///
/// Source    LogGP [Alexandrov95] §3, with o, L and G
struct ControlNetworkModel {
  double latency_us = 2.0;
  double overhead_us = 1.0;
  double bytes_per_us = 10'000.0;  // 10 GB/s
};

/// How the ranks of a training job agree on one order.
enum class CoordinationDesign : std::uint8_t {
  kFlat,    // every rank sends its requests to rank 0 and hears from it
  kTree,    // the same up and down a binomial tree
  kCached,  // the tree for what is new, an allreduce of bits for what is known
};
inline constexpr const char* kCoordinationDesigns[] = {"flat", "tree", "cached"};

struct CoordinationScenario {
  CoordinationDesign design = CoordinationDesign::kCached;
  std::int32_t rank_count = 1;
  std::int32_t tensor_count = 161;  // per step, in another order on every rank
  std::uint32_t cache_capacity = 1024;
  std::uint32_t seed = 1;
  ControlNetworkModel network;
};

/// The cost of one cycle, which agrees on all tensors of one step.
struct CoordinationCost {
  std::uint64_t messages = 0, bytes = 0;  // of all ranks
  std::uint64_t message_bytes_max = 0;
  std::uint64_t received_by_rank_0 = 0;  // messages
  std::uint64_t rounds = 0;  // longest chain of messages, each sent after the previous one came
  double seconds = 0;        // until the last rank knows what to run
};

/// Runs the controllers of all ranks, the code that production runs, through `step_count` steps;
/// one cost per step. Local work on requests takes no simulated time.
///
/// Memory    about 30 kB per rank with 161 tensors.
/// Errors    kInvalidArgument naming the argument; kInternal if the ranks do not agree.
Result<std::vector<CoordinationCost>> simulate_coordination(const CoordinationScenario& scenario,
                                                            int step_count);

}  // namespace farandole
