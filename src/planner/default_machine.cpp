// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "planner/default_machine.hpp"

#include <algorithm>
#include <string>

namespace farandole {
namespace {

// What a message costs, and how fast one rank moves bytes.
struct Medium {
  double alpha, overhead, bytes_per_second, fill_chunks;
  double crowding = 0;
};

// Assumed: a flag that another core sees, and a core that copies from its cache.
constexpr Medium kMemory = {1e-6, 0.3e-6, 8e9, 0};
// Where ranks share a core, a round waits until the others there have run, and a message for a core
// that another rank's messages have used: so long for each rank of the core. Ranks on two cores of
// an AMD EPYC, allreduce of 512 bytes, us, in one round to all, by recursive doubling, and direct:
// three 2.4, 3.9, 4.4, four 3.9, 5.2, 8.0, eight 11, 16, 20; of 256, sixteen 41, 57, 75. The model
// has 2.8, 7.0, 5.2, then 4.1, 6.2, 7.7, then 12, 18, 22, then 35, 48, 69.
constexpr double kSharedCoreAlpha = 1.5e-6, kSharedCoreOverhead = 0.2e-6;
constexpr double kSharedCoreSocketAlpha = 20e-6;  // assumed: it waits for a wake-up as well
// A message's system call, too, takes as many times as long as ranks share the core. Four ranks on
// two cores over loopback, calls that follow each other: an allgather of 64 B took 72 us direct and
// 44 in two rounds (Bruck), a broadcast of 2 KiB 30 us by radix 4 and 18 by radix 2.
// Assumed: system calls and a wake-up on both sides, half of that for each message more. Of its
// first message a phase waits for 0.4 before all ports are busy: so much do [Ueno19]'s tables give
// for rings between hosts.
constexpr Medium kLoopback = {15e-6, 8e-6, 4e9, 0.4};
// Assumed: the same across a switch of 10 Gbit/s.
constexpr Medium kEthernet = {30e-6, 15e-6, 1.25e9, 0.4};
// With 10 GB/s two ranks reduce directly from 16 KiB on. Allreduce of 16 and 32 KiB, ordinary
// memory, us, direct and by recursive doubling: an AMD EPYC 1.8, 3.7 and 2.2, 4.4, an Intel
// Xeon 5.0, 7.2 and 4.1, 6.0; library-owned memory 1.1, 1.5 and 3.3, 6.3, and 1.9, 2.4
// and 4.0, 5.7. What comes from a socket is in the cache by then: 512 KiB 268 and 284 us, 1 MiB 593
// and 536.
constexpr double kReduceInMemory = 10e9, kReduceFromSocket = 20e9;  // bytes per second
constexpr double kCopyBytesPerSecond = 10e9;  // assumed: one core, out of its cache

void set(HopCost& hop, const Medium& medium) {
  hop.alpha = medium.alpha;
  hop.overhead = medium.overhead;
  hop.fill_chunks = medium.fill_chunks;
  hop.crowding = medium.crowding;
}

}  // namespace

Machine default_machine(std::int64_t ranks_per_host, std::int64_t hosts, bool shared_memory,
                        std::int64_t cores) {
  Medium inside = shared_memory ? kMemory : kLoopback;
  if (cores > 0 && ranks_per_host > cores) {
    const double share = static_cast<double>(ranks_per_host) / static_cast<double>(cores);
    inside.alpha = shared_memory ? kSharedCoreAlpha * share : kSharedCoreSocketAlpha;
    // Through sockets all messages of a round, on both sides, take turns on the cores. Ranks on two
    // cores: four, broadcast of 4 MiB in 16 pieces along a chain 3.8 ms, by radix 2 2.9; three,
    // allreduce of 4 B in two rounds of six messages 59 us, in four of one 24.
    inside.crowding = shared_memory ? 0 : 2 * inside.overhead / static_cast<double>(cores);
    inside.overhead = (shared_memory ? kSharedCoreOverhead : inside.overhead) * share;
  }
  Machine machine;
  machine.name = "default";
  machine.nodes = {{"memory", Machine::Kind::kMemory}, {"nic", Machine::Kind::kNic}};
  if (!shared_memory) machine.nodes[0] = {"loopback", Machine::Kind::kSwitch};
  // Memory does not hold up the way to the network.
  machine.links = {{0, 1,
                    std::max(inside.bytes_per_second, kEthernet.bytes_per_second) *
                        static_cast<double>(std::max<std::int64_t>(1, ranks_per_host))}};
  for (std::int64_t rank = 0; rank < ranks_per_host; ++rank) {
    const auto node = static_cast<std::int32_t>(machine.nodes.size());
    machine.nodes.push_back({"cpu" + std::to_string(rank), Machine::Kind::kCpu});
    // Through sockets, what a rank sends and what it receives are copied by the same thread.
    machine.links.push_back({node, 0, inside.bytes_per_second, !shared_memory});
    machine.devices.push_back(node);
    machine.nic_of.push_back(1);
  }
  machine.hosts = hosts;
  machine.nic_bytes_per_second = kEthernet.bytes_per_second;
  set(machine.hops[static_cast<std::size_t>(Hop::kHost)], inside);
  set(machine.hops[static_cast<std::size_t>(Hop::kRack)], kEthernet);
  set(machine.hops[static_cast<std::size_t>(Hop::kFabric)], kEthernet);
  machine.reduce_seconds_per_byte = 1 / (shared_memory ? kReduceInMemory : kReduceFromSocket);
  machine.copy_seconds_per_byte = 1 / kCopyBytesPerSecond;
  return machine;
}

}  // namespace farandole
