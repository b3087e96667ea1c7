// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "farandole/result.hpp"

namespace farandole {

/// One training step, as every rank sees it: forward, backward, with gradients in flight meanwhile.
/// They are in device memory, where copies to a shared buffer hardly take time. All times in
/// seconds, since the step began.
struct TrainingScenario {
  struct Gradient {
    std::uint64_t elements = 0;  // float32
    double ready = 0;            // on the slowest rank
    std::int32_t group = -1;     // of an explicit group; negative: in none
  };
  std::vector<Gradient> gradients;
  double compute_seconds = 0;  // when the backward pass has ended, on the slowest rank
  double cycle_seconds = 1e-3;
  double control_seconds = 0;  // of one cycle, until the last rank knows what to run
  std::uint64_t fusion_threshold_bytes = std::uint64_t{128} << 20;
  std::function<double(std::uint64_t bytes)> allreduce_seconds;
};

struct TrainingCost {
  double seconds = 0;                // of the step
  double exposed_seconds = 0;        // of it, after the backward pass
  double communication_seconds = 0;  // sum over allreduces
  double control_seconds = 0;        // sum over cycles
  std::uint64_t cycles = 0, batches = 0;
};

/// Runs the coordinator's policy over the step: requests wait for others until the cycle time is
/// over or the backward pass has ended. Those that are ready then are fused by the code that
/// production runs. The batches run one after the other, with up to four in flight.
///
/// Errors    kInvalidArgument naming the argument: negative times, a gradient that is ready after
///           the backward pass, no allreduce_seconds.
Result<TrainingCost> simulate_training(const TrainingScenario& scenario);

}  // namespace farandole
