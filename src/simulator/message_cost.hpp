// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <limits>
#include <vector>

#include "model/network.hpp"

namespace farandole {

/// What a message costs whatever its size and its neighbours.
struct MessageCost {
  Hop hop = Hop::kHost;
  double head_seconds = 0;  // alpha and latency, before its first byte
  double efficiency = 1;
  double fixed_rate = 0;  // bytes per second where no wire decides; 0: its links decide
};

/// Appends the links that the message shares with others, if any decide its rate.
inline MessageCost message_cost(const Network& network, std::int32_t from, std::int32_t to,
                                std::int64_t ring_size, std::vector<std::int32_t>& links) {
  const std::size_t before = links.size();
  const Network::Route route = network.route(from, to, links);
  const HopCost& hop = network.machine().hops[static_cast<std::size_t>(route.hop)];
  MessageCost cost{route.hop, hop.alpha + route.latency, hop.efficiency};
  if (links.size() == before) cost.fixed_rate = std::numeric_limits<double>::infinity();
  // The stride of a ring is between neighbours; the last of them is size - 1 strides from the
  // first.
  const std::int64_t distance = std::abs(std::int64_t{to} - from);
  for (const HopCost::RingRate& rate : hop.ring_rates) {
    const bool meant = rate.stride == 0 || distance == rate.stride ||
                       distance == rate.stride * (rate.ring_size - 1);
    if (meant && ring_size > 0 && rate.ring_size == ring_size) {
      cost.fixed_rate = rate.bytes_per_second;
    }
  }
  if (cost.fixed_rate > 0) links.resize(before);
  return cost;
}

}  // namespace farandole
