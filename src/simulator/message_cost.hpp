// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "model/network.hpp"
#include "schedule/schedule.hpp"
#include "simulator/message_counts.hpp"

namespace farandole {

/// The cost of a message that does not depend on its size.
struct MessagePrice {
  Hop hop = Hop::kHost;
  double head_seconds = 0;  // before its first byte
  double efficiency = 1;
  double fixed_rate = 0;  // bytes per second where no wire decides; 0: its links decide
};

/// Adds what a message pays for others of its round over the same hop.
inline void pay_for_others(const Machine& machine, const MessageCounts& sender,
                           const MessageCounts& receiver, MessagePrice& cost) {
  const auto h = static_cast<std::size_t>(cost.hop);
  cost.head_seconds += machine.hops[h].crowding * static_cast<double>(sender.around[h] - 1);
  const std::int32_t others = std::max(sender.sent[h], receiver.received[h]) - 1;
  if (others < 1) return;
  cost.head_seconds += machine.hops[h].overhead * static_cast<double>(others);
  cost.efficiency *= machine.hops[h].fan_efficiency;
}

/// Whether a measured rate of rings applies to `stage`.
inline bool is_rate_of(const HopCost::RingRate& rate, const Stage& stage) {
  return rate.ring_size == stage.ring_size &&
         (rate.stride == 0 || rate.stride == stage.ring_stride);
}

/// The cost of a message by itself. Appends the links that it shares with others, if they decide
/// its rate.
inline MessagePrice message_cost(const Network& network, std::int32_t from, std::int32_t to,
                                 const Stage& stage, std::vector<std::int32_t>& links) {
  const std::size_t before = links.size();
  const Network::Route route = network.route(from, to, links);
  const HopCost& hop = network.machine().hops[static_cast<std::size_t>(route.hop)];
  MessagePrice cost{route.hop, hop.alpha + route.latency, hop.efficiency};
  if (links.size() == before) cost.fixed_rate = std::numeric_limits<double>::infinity();
  for (const HopCost::RingRate& rate : hop.ring_rates) {
    if (is_rate_of(rate, stage)) cost.fixed_rate = rate.bytes_per_second;
  }
  if (cost.fixed_rate > 0) links.resize(before);
  return cost;
}

}  // namespace farandole
