// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "simulator/message_counts.hpp"
#include "simulator/workload.hpp"

namespace farandole {

/// Rounds of a workload, written out when the first rank enters and kept until the last has left.
///
/// Threads   one at a time.
class RoundCache {
 public:
  struct Entry {
    TimedRound timed;
    Counters counters{};
    std::int64_t visits_left = 0;
    std::vector<MessageCounts> counts;  // [rank]: filled in by a caller that needs them
  };

  explicit RoundCache(Workload& workload);
  /// The round of a kRound instruction. Every rank that asks for it calls release() later.
  ///
  /// Errors    those of Workload::round().
  Result<Entry*> find(std::uint32_t instruction, const Counters& counters);
  void release(std::uint32_t instruction, Entry* entry);

 private:
  Workload& workload_;
  std::vector<std::vector<std::unique_ptr<Entry>>> entries_;  // [instruction]
  std::vector<std::int64_t> visits_;                          // [instruction], of each entry
};

}  // namespace farandole
