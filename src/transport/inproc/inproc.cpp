// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/inproc/inproc.hpp"

#include <unistd.h>

#include <string>
#include <utility>

#include "transport/shm/shm_transport.hpp"

namespace farandole {

Result<std::vector<ThreadRank>> make_inproc(int rank_count, InprocOptions options) {
  std::vector<ThreadRank> ranks(static_cast<std::size_t>(rank_count));
  Members members;
  std::vector<std::pair<std::byte*, Bytes>> memories;
  for (ThreadRank& rank : ranks) {
    auto memory = Memory::create(options.reserve);
    if (!memory) return memory.error();
    rank.memory = *std::move(memory);
    auto bell = Doorbell::create(Doorbell::word_in(*rank.memory));
    if (!bell) return bell.error();
    rank.doorbell = *std::move(bell);
    auto record = ShmTransport::record(*rank.memory, *rank.doorbell);
    if (!record) return record.error();
    const auto index = static_cast<int>(members.size());
    members.push_back(Member{.rank = Rank{index},
                             .local_rank = index,
                             .host = "inproc",
                             .host_id = "inproc",
                             .pid = ::getpid(),
                             .record = *std::move(record)});
    memories.emplace_back(rank.memory->base(), rank.memory->reserved());
  }
  ShmTransport::Options shm_options;
  shm_options.all_memory = options.all_memory;
  if (!options.map_through_proc) {
    shm_options.map = [memories](const Member& member, Bytes) -> Result<shm::Mapping> {
      const auto [base, bytes] = memories[static_cast<std::size_t>(member.rank.value())];
      return shm::Mapping(base, bytes);
    };
  }
  for (const Member& member : members) {
    ThreadRank& rank = ranks[static_cast<std::size_t>(member.rank.value())];
    auto transport =
        ShmTransport::create(member.rank, members, *rank.memory, *rank.doorbell, shm_options);
    if (!transport) return transport.error();
    rank.transport = *std::move(transport);
    if (!options.peer_memory) continue;
    auto registered =
        rank.transport->register_memory({rank.memory->base(), rank.memory->reserved().value()});
    if (!registered) return registered.error();
  }
  return ranks;
}

}  // namespace farandole
