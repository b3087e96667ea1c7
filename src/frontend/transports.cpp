// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "frontend/transports.hpp"

#include <map>
#include <utility>

#include "planner/default_machine.hpp"
#include "transport/registry.hpp"

namespace farandole {
namespace {

// A transport with up to this many peers connects to them at start-up, when all ranks are there
// anyway. With more, connections are made when a plan first needs them.
constexpr std::size_t kConnectAtStartMax = 64;

}  // namespace

Result<std::vector<Transport*>> make_transports(ContextState& state) {
  auto chosen = choose_transports(state.environment.transport, state.environment.job.rank,
                                  state.membership.members);
  if (!chosen) return chosen.error();
  std::map<const TransportRow*, std::vector<Rank>> peers;
  for (std::size_t rank = 0; rank < chosen->size(); ++rank) {
    if ((*chosen)[rank] != nullptr) peers[(*chosen)[rank]].push_back(Rank{static_cast<int>(rank)});
  }
  std::vector<Transport*> by_rank(chosen->size(), nullptr);
  for (const auto& [row, ranks] : peers) {
    auto made = row->create(
        {.self = state.environment.job.rank,
         .members = state.membership.members,
         .memory = *state.fabric.memory,
         .doorbell = *state.fabric.doorbell,
         .session = *state.membership.session,
         .peers = ranks,
         .peer_memory = state.environment.peer_memory,
         .suspect = [&relay = state.membership.relay](Rank peer) { relay.suspect(peer); }});
    if (!made) return made.error();
    for (const Rank rank : ranks) by_rank[static_cast<std::size_t>(rank.value())] = made->get();
    state.fabric.transports.push_back(*std::move(made));
  }
  return by_rank;
}

Result<void> connect_early(ContextState& state, const std::vector<Transport*>& by_rank) {
  std::map<Transport*, std::vector<Rank>> peers;
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    if (by_rank[rank] != nullptr) peers[by_rank[rank]].push_back(Rank{static_cast<int>(rank)});
  }
  const Deadline deadline = Deadline::after(state.environment.job.start_timeout);
  for (const auto& [transport, ranks] : peers) {
    if (ranks.size() > kConnectAtStartMax) continue;
    if (auto connected = transport->connect(ranks, deadline); !connected) return connected;
  }
  return {};
}

Machine assumed_machine(std::int64_t ranks_per_host, std::int64_t hosts, std::string_view transport,
                        std::int64_t cores) {
  const Distance inside{.ranks_per_host = static_cast<double>(ranks_per_host),
                        .cores = static_cast<double>(cores)};
  Distance between = inside;
  between.same_host = false;
  return default_machine(ranks_per_host, hosts, transport_for(transport, true).cost(inside),
                         transport_for(transport, false).cost(between));
}

}  // namespace farandole
