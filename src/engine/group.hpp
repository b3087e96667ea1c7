// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/claims.hpp"
#include "farandole/result.hpp"
#include "farandole/types.hpp"
#include "transport/transport.hpp"

namespace farandole {

/// The ranks of one communicator and how to reach each. Immutable once made, except for the abort
/// flag and for the fields that only the engine's driver reads and writes.
struct Group {
  std::uint32_t communicator = 0;      // below kPointToPoint, see batch.hpp
  Rank self{0};                        // in this group
  std::vector<Rank> world_ranks;       // [size], by rank in this group
  std::vector<Transport*> transports;  // [size], by rank in this group; none for self
  /// Why nothing may start here any more.
  mutable std::optional<Error> broken;
  /// How long an operation stands still before this rank makes a claim about it.
  mutable std::chrono::nanoseconds patience = kPatienceMin;
  /// A member has aborted the communicator. Any thread.
  bool aborted() const { return std::atomic_ref(aborted_).load(std::memory_order_acquire); }
  void set_aborted() const { std::atomic_ref(aborted_).store(true, std::memory_order_release); }

  /// Together with the number it identifies this communicator: groups that share no rank may share
  /// a number, as those made by one split do.
  Rank first() const { return world_ranks.front(); }
  int size() const { return static_cast<int>(world_ranks.size()); }
  bool contains(Rank world_rank) const {
    return std::find(world_ranks.begin(), world_ranks.end(), world_rank) != world_ranks.end();
  }

  mutable bool aborted_ = false;  // aborted()
};

}  // namespace farandole
