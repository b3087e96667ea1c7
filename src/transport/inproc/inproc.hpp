// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "farandole/result.hpp"
#include "transport/row.hpp"

namespace farandole {

struct InprocOptions {
  bool peer_memory = true;              // false: register nothing, so that it is staged
  bool all_memory = false;              // true: the kernel copies what would be staged
  Bytes reserve{std::size_t{4} << 30};  // address space per rank
  bool map_through_proc = false;        // map each other as separate processes do
};

/// Ranks 0 .. rank_count - 1 over the shared-memory transport, in one process: peers use each
/// other's Memory by plain pointer, so that a race detector sees all accesses to a byte under one
/// address. connect() is still to be called. No Memory may go before all ranks have stopped.
Result<std::vector<ThreadRank>> make_inproc(int rank_count, InprocOptions options = {});

}  // namespace farandole
