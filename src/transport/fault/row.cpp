// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/fault/row.hpp"

#include <utility>

#include "transport/fault/fault_transport.hpp"

namespace farandole::fault {

Result<std::vector<ThreadRank>> make_threads(int rank_count, bool peer_memory) {
  auto ranks = inproc::make_threads(rank_count, peer_memory);
  if (!ranks) return ranks.error();
  std::uint64_t seed = 0;
  for (ThreadRank& rank : *ranks) {
    FaultTransport::Options options;
    options.seed = ++seed;
    options.post_delay_max = 3;
    options.reorder = true;
    options.stall_every = 7;
    options.wake_every = 5;
    rank.transport = std::make_unique<FaultTransport>(std::move(rank.transport), options);
  }
  return ranks;
}

}  // namespace farandole::fault
