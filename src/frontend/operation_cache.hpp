// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>

#include "engine/collective.hpp"

namespace farandole {

struct Call;
struct Plan;

/// Collectives that ended, to run again for calls like the ones that made them: most of what a
/// small collective costs is choosing its plan and making its operation.
///
/// Threads   one at a time.
/// Memory    kEntries operations, each of at most kTransfersMax transfers a round and
///           kScratchBytesMax of scratch.
class OperationCache {
 public:
  /// The operation of an equal call, if it ended well and nobody else holds it any more, for the
  /// caller to renew; else null. Counts the call in its plan.
  std::shared_ptr<CollectiveOperation> find(const Call& call);
  /// Remembers what a call made, if it can be run again, and counts the call.
  void keep(const Call& call, std::shared_ptr<CollectiveOperation> made,
            std::shared_ptr<Plan> plan);
  void clear() { slots_ = {}; }

 private:
  static constexpr std::size_t kEntries = 32;
  static constexpr std::size_t kTransfersMax = 64;
  static constexpr std::size_t kScratchBytesMax = std::size_t{64} << 10;
  struct Slot {
    // Of the call; its buffers only tell whether it was in place.
    Collective collective{};
    Count count;
    DType dtype{};
    Reduction reduction{};
    Rank root{0};
    bool in_place = false, deterministic = false;
    int size_shift = 0;
    std::string algorithm;
    std::size_t bytes = 0;  // of its larger buffer on this rank
    std::shared_ptr<CollectiveOperation> operation;
    std::shared_ptr<Plan> plan;
  };
  static bool is_of(const Slot& slot, const Call& call);
  static std::size_t index_of(const Call& call);

  std::array<Slot, kEntries> slots_;
};

}  // namespace farandole
