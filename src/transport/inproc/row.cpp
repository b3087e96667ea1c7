// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/inproc/row.hpp"

#include "transport/inproc/inproc.hpp"

namespace farandole::inproc {

Result<std::vector<ThreadRank>> make_threads(int rank_count, bool peer_memory) {
  return make_inproc(rank_count, {.peer_memory = peer_memory});
}

Result<std::vector<ThreadRank>> make_kernel_threads(int rank_count, bool peer_memory) {
  return make_inproc(rank_count, {.peer_memory = peer_memory, .all_memory = true});
}

}  // namespace farandole::inproc
