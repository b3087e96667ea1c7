// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "farandole/types.hpp"
#include "transport/transport.hpp"

namespace farandole {

/// The ranks of one communicator and how to reach each. Immutable once made.
struct Group {
  std::uint32_t communicator = 0;
  Rank self{0};                        // in this group
  std::vector<Rank> world_ranks;       // [size], by rank in this group
  std::vector<Transport*> transports;  // [size], by rank in this group; none for self

  int size() const { return static_cast<int>(world_ranks.size()); }
  bool contains(Rank world_rank) const {
    return std::find(world_ranks.begin(), world_ranks.end(), world_rank) != world_ranks.end();
  }
};

}  // namespace farandole
