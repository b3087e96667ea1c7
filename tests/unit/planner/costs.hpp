// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "planner/default_machine.hpp"

namespace farandole {

// Costs of messages, so that the planner's tests are about machines that are known.
// tests/unit/frontend/transports_test.cpp compares them with what the transports say of themselves.

inline MessageCost memory_cost(const Distance& distance) {
  MessageCost cost{.alpha = 1e-6,
                   .overhead = 0.3e-6,
                   .bytes_per_second = 8e9,
                   .through_memory = true,
                   .reduce_bytes_per_second = 10e9};
  if (!distance.shares_cores()) return cost;
  cost.alpha = 1.5e-6 * distance.ranks_per_core();
  cost.overhead = 0.2e-6 * distance.ranks_per_core();
  return cost;
}

inline MessageCost socket_cost(const Distance& distance) {
  if (!distance.same_host) {
    return {.alpha = 30e-6,
            .overhead = 15e-6,
            .bytes_per_second = 1.25e9,
            .fill_chunks = 0.4,
            .reduce_bytes_per_second = 20e9};
  }
  MessageCost cost{.alpha = 15e-6,
                   .overhead = 8e-6,
                   .bytes_per_second = 4e9,
                   .fill_chunks = 0.4,
                   .reduce_bytes_per_second = 20e9};
  if (!distance.shares_cores()) return cost;
  cost.alpha = 20e-6;
  cost.crowding = 2 * cost.overhead / distance.cores;
  cost.overhead *= distance.ranks_per_core();
  return cost;
}

/// Ranks of a host meet in its memory, or over loopback; hosts meet at a switch.
inline Machine usual_machine(std::int64_t ranks_per_host, std::int64_t hosts, bool shared_memory,
                             std::int64_t cores = 0) {
  const Distance inside{.ranks_per_host = static_cast<double>(ranks_per_host),
                        .cores = static_cast<double>(cores)};
  const auto cost = shared_memory ? &memory_cost : &socket_cost;
  return default_machine(ranks_per_host, hosts, cost(inside), socket_cost({.same_host = false}));
}

}  // namespace farandole
