// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/row.hpp"

#include <utility>

#include "base/settings.hpp"
#include "bootstrap/descriptor_limit.hpp"
#include "transport/tcp/session_connector.hpp"
#include "transport/tcp/tcp_transport.hpp"

namespace farandole::tcp {
namespace {

// Assumed: alpha is system calls and a wake-up on both sides, overhead half of that for each
// further message. A phase waits for 0.4 of its first message before all ports are busy: [Ueno19]'s
// tables give that for rings between hosts. Bytes from a socket are in the cache when they are
// reduced: an allreduce of two ranks, direct and by recursive doubling, takes 268 and 284 us for
// 512 KiB, 593 and 536 for 1 MiB.
constexpr MessageCost kLoopback{.alpha = 15e-6,
                                .overhead = 8e-6,
                                .bytes_per_second = 4e9,
                                .fill_chunks = 0.4,
                                .reduce_bytes_per_second = 20e9};
// Assumed: the same through a switch of 10 Gbit/s.
constexpr MessageCost kEthernet{.alpha = 30e-6,
                                .overhead = 15e-6,
                                .bytes_per_second = 1.25e9,
                                .fill_chunks = 0.4,
                                .reduce_bytes_per_second = 20e9};
constexpr double kSharedCoreAlpha = 20e-6;  // assumed: a message waits for a wake-up as well

}  // namespace

Result<std::unique_ptr<Transport>> create_row(const TransportSite& site) {
  auto connections = number_setting("FARANDOLE_TCP_CONNECTIONS");
  if (!connections) return connections.error();
  const auto each = static_cast<std::size_t>(*connections);
  auto room = make_room_for_descriptors(
      site.peers.size() * each, std::to_string(each) +
                                    " TCP connections (FARANDOLE_TCP_CONNECTIONS) with each of " +
                                    std::to_string(site.peers.size()) + " ranks");
  if (!room) return room.error();
  TcpTransport::Options options;
  options.connection_count = static_cast<int>(*connections);
  options.on_link_lost = site.suspect;
  auto made =
      TcpTransport::create(site.self, static_cast<int>(site.members.size()),
                           std::make_unique<SessionConnector>(site.session), std::move(options));
  if (!made) return made.error();
  return std::unique_ptr<Transport>(*std::move(made));
}

/// Where ranks share a core, a message's system call takes as many times as long as there are ranks
/// on the core, and all messages of a round, on both sides, take turns on the cores. Four ranks on
/// two cores over loopback, one call after the other: an allgather of 64 B took 72 us direct and 44
/// in two rounds (Bruck); a broadcast of 2 KiB 30 us by radix 4 and 18 by radix 2; a broadcast of 4
/// MiB 3.8 ms in 16 pieces along a chain and 2.9 by radix 2. Three ranks, allreduce of 4 B: 59 us
/// in two rounds of six messages, 24 in four rounds of one.
MessageCost cost_of(const Distance& distance) {
  if (!distance.same_host) return kEthernet;
  MessageCost cost = kLoopback;
  if (distance.shares_cores()) {
    cost.alpha = kSharedCoreAlpha;
    cost.crowding = 2 * cost.overhead / distance.cores;
    cost.overhead *= distance.ranks_per_core();
  }
  return cost;
}

}  // namespace farandole::tcp
