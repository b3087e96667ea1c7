// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/controller.hpp"
#include "farandole/result.hpp"

namespace farandole::coordinator {

/// Connects a rank's controller with those of the other ranks.
///
/// Threads   the thread that runs the cycles.
/// Blocking  every call, until the peers have called too; with a deadline or a liveness check.
class Network {
 public:
  virtual ~Network() = default;
  /// words[i] becomes the AND over all ranks, which all have as many words.
  virtual Result<void> all_and(std::span<std::uint64_t> words) = 0;
  virtual Result<void> send(std::int32_t rank, std::string_view message) = 0;
  virtual Result<std::string> receive(std::int32_t rank) = 0;
};

/// The tree of reports: binomial with rank 0 as the root, so that rank 0 hears from lg p others;
/// with `flat`, all ranks are its children. Every subtree is a run of consecutive ranks.
struct Tree {
  std::optional<std::int32_t> parent;
  std::vector<std::int32_t> children;  // ascending
  static Tree at(std::int32_t rank, std::int32_t rank_count, bool flat = false);
};

/// One cycle of this rank.
///
/// Errors    those of the network; the controller cannot be used any more after one.
Result<void> run_cycle(Controller& controller, Network& network, Clock::time_point now);

}  // namespace farandole::coordinator
