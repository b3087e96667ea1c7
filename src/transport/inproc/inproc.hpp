// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "farandole/result.hpp"
#include "transport/row.hpp"

namespace farandole {

struct InprocOptions {
  bool peer_memory = true;              // false: register no memory, so that messages are staged
  bool all_memory = false;              // true: the kernel copies what would be staged otherwise
  Bytes reserve{std::size_t{4} << 30};  // address space per rank
  bool map_through_proc = false;        // ranks map each other's memory as separate processes do
};

/// Makes ranks 0 .. rank_count - 1 over the shared-memory transport, in one process. Peers use each
/// other's Memory by plain pointer, so that a race detector sees all accesses to a byte under one
/// address. The caller still has to call connect(). No Memory may be destroyed before all ranks
/// have stopped.
Result<std::vector<ThreadRank>> make_inproc(int rank_count, InprocOptions options = {});

}  // namespace farandole
