// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <span>
#include <vector>

#include "model/network.hpp"
#include "simulator/workload.hpp"

namespace farandole {

/// Messages of one round over each hop, as one rank sees them.
struct MessageCounts {
  using OfHops = std::array<std::int32_t, kHopCount>;
  OfHops sent{}, received{};  // by this rank
  OfHops around{};            // sent by all ranks; over Hop::kHost by those of its host
};

/// Whether messages on this machine pay for others.
bool counts_matter(const Machine& machine);

/// The counts of every rank of the schedule; rank r is `network_ranks[r]` of the network, or r if
/// that is empty.
std::vector<MessageCounts> count_messages(const Network& network, const TimedRound& round,
                                          std::span<const std::int32_t> network_ranks);

}  // namespace farandole
