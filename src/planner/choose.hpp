// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "farandole/types.hpp"

namespace farandole {

/// What the choice of an algorithm depends on; the same on every rank of a communicator.
struct Situation {
  Collective collective;
  Bytes bytes;  // of the larger side, per rank
  int rank_count;
  bool peer_memory = false;  // every pair of ranks can read the other's library-owned memory
};

/// The algorithm for a call that names none: latency-optimal ones for short messages, bandwidth-
/// optimal ones for long. Depends on shared data only, so every rank chooses alike.
std::string_view choose_algorithm(const Situation& situation);

}  // namespace farandole
