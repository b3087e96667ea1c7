// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "farandole/result.hpp"
#include "farandole/types.hpp"
#include "transport/transport.hpp"

namespace farandole {

/// The ranks of one communicator and how to reach each. Immutable once made, but for `broken`.
struct Group {
  std::uint32_t communicator = 0;      // below kPointToPoint, see batch.hpp
  Rank self{0};                        // in this group
  std::vector<Rank> world_ranks;       // [size], by rank in this group
  std::vector<Transport*> transports;  // [size], by rank in this group; none for self
  /// Why nothing may start here any more. The engine's driver alone reads and writes it.
  mutable std::optional<Error> broken;

  int size() const { return static_cast<int>(world_ranks.size()); }
  bool contains(Rank world_rank) const {
    return std::find(world_ranks.begin(), world_ranks.end(), world_rank) != world_ranks.end();
  }
};

}  // namespace farandole
