// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "simulator/message_counts.hpp"

#include <algorithm>

namespace farandole {

bool counts_matter(const Machine& machine) {
  return std::ranges::any_of(machine.hops, [](const HopCost& hop) {
    return hop.overhead > 0 || hop.crowding > 0 || hop.fan_efficiency < 1;
  });
}

std::vector<MessageCounts> count_messages(const Network& network, const TimedRound& round,
                                          std::span<const std::int32_t> network_ranks) {
  const auto network_rank = [&](std::int32_t rank) {
    return network_ranks.empty() ? rank : network_ranks[static_cast<std::size_t>(rank)];
  };
  const auto rank_count = static_cast<std::int32_t>(round.first.size()) - 1;
  std::vector<MessageCounts> counts(static_cast<std::size_t>(rank_count));
  MessageCounts::OfHops all{};
  std::vector<std::int32_t> within;  // [host]
  for (std::int32_t rank = 0; rank < rank_count; ++rank) {
    MessageCounts& own = counts[static_cast<std::size_t>(rank)];
    for (const TimedAction& action : round.of(rank)) {
      if (action.kind == Action::Kind::kLocal) continue;
      const Hop hop = network.hop(network_rank(rank), network_rank(action.peer));
      auto& of_side = action.kind == Action::Kind::kSend ? own.sent : own.received;
      ++of_side[static_cast<std::size_t>(hop)];
    }
    const auto host = static_cast<std::size_t>(network.host(network_rank(rank)));
    within.resize(std::max(within.size(), host + 1));
    within[host] += own.sent[static_cast<std::size_t>(Hop::kHost)];
    for (std::size_t hop = 0; hop < kHopCount; ++hop) all[hop] += own.sent[hop];
  }
  for (std::int32_t rank = 0; rank < rank_count; ++rank) {
    MessageCounts& own = counts[static_cast<std::size_t>(rank)];
    own.around = all;
    own.around[static_cast<std::size_t>(Hop::kHost)] =
        within[static_cast<std::size_t>(network.host(network_rank(rank)))];
  }
  return counts;
}

}  // namespace farandole
