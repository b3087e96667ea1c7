// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "planner/default_machine.hpp"

#include <algorithm>
#include <string>

namespace farandole {
namespace {

constexpr double kCopyBytesPerSecond = 10e9;  // assumed: one core, out of its cache

void set(HopCost& hop, const MessageCost& cost) {
  hop.alpha = cost.alpha;
  hop.overhead = cost.overhead;
  hop.fill_chunks = cost.fill_chunks;
  hop.crowding = cost.crowding;
}

}  // namespace

Machine default_machine(std::int64_t ranks_per_host, std::int64_t hosts, const MessageCost& inside,
                        const MessageCost& between) {
  Machine machine;
  machine.name = "default";
  machine.nodes = {{"memory", Machine::Kind::kMemory}, {"nic", Machine::Kind::kNic}};
  if (!inside.through_memory) machine.nodes[0] = {"loopback", Machine::Kind::kSwitch};
  // The link between the node where a host's ranks meet and the NIC must not limit the network.
  machine.links = {{0, 1,
                    std::max(inside.bytes_per_second, between.bytes_per_second) *
                        static_cast<double>(std::max<std::int64_t>(1, ranks_per_host))}};
  for (std::int64_t rank = 0; rank < ranks_per_host; ++rank) {
    const auto node = static_cast<std::int32_t>(machine.nodes.size());
    machine.nodes.push_back({"cpu" + std::to_string(rank), Machine::Kind::kCpu});
    machine.links.push_back({node, 0, inside.bytes_per_second, !inside.through_memory});
    machine.devices.push_back(node);
    machine.nic_of.push_back(1);
  }
  machine.hosts = hosts;
  machine.nic_bytes_per_second = between.bytes_per_second;
  set(machine.hops[static_cast<std::size_t>(Hop::kHost)], inside);
  set(machine.hops[static_cast<std::size_t>(Hop::kRack)], between);
  set(machine.hops[static_cast<std::size_t>(Hop::kFabric)], between);
  machine.reduce_seconds_per_byte = 1 / inside.reduce_bytes_per_second;
  machine.copy_seconds_per_byte = 1 / kCopyBytesPerSecond;
  return machine;
}

}  // namespace farandole
