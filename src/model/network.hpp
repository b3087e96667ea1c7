// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "farandole/result.hpp"
#include "model/machine.hpp"

namespace farandole {

/// How messages between racks are spread over the uplinks.
enum class Routing : std::uint8_t {
  kStaticHash,   // a hash of both ports and a seed chooses the spine
  kDestination,  // the destination's port, modulo the uplinks
  kIdeal,        // all uplinks of a rack are one capacity
};
inline constexpr const char* kRoutingNames[] = {"static_hash", "destination", "ideal"};

/// Where a rank lives.
struct Place {
  std::int32_t host = 0, device = 0;
  bool operator==(const Place&) const = default;
};

/// A machine with ranks on it, as directed links with capacities. A half-duplex link is one
/// capacity for both directions.
///
/// Routes    within a host: fewest links, then the highest rate. Between hosts: device, its NIC,
///           the rack's switch, [a spine, the other rack's switch,] NIC, device. Their latency is
///           the sum of their links'. Two ranks on one device have no wire between them.
/// Memory    8 bytes per link; routes between hosts are put together when asked for.
/// Threads   immutable; share freely.
class Network {
 public:
  /// Rank r sits at `placement[r]`.
  ///
  /// Errors    kInvalidArgument, also those of check(machine).
  static Result<Network> create(Machine machine, std::vector<Place> placement,
                                Routing routing = Routing::kStaticHash, std::uint64_t seed = 0);
  /// Hosts are filled one after the other, all devices of each.
  static Result<Network> create(Machine machine, std::int64_t rank_count,
                                Routing routing = Routing::kStaticHash, std::uint64_t seed = 0);

  struct Route {
    Hop hop = Hop::kHost;
    double latency = 0;  // seconds
  };
  /// The route of a message; appends its links.
  Route route(std::int32_t from, std::int32_t to, std::vector<std::int32_t>& links) const;
  Hop hop(std::int32_t from, std::int32_t to) const;
  std::int32_t host(std::int32_t rank) const {
    return placement_[static_cast<std::size_t>(rank)].host;
  }

  const Machine& machine() const { return machine_; }
  std::int64_t rank_count() const { return static_cast<std::int64_t>(placement_.size()); }
  /// Bytes per second of each link.
  std::span<const double> capacities() const { return capacities_; }
  /// The largest number of links of a route.
  std::size_t route_links_max() const { return route_links_max_; }
  /// For people: "host 3: gpu0 -> nic0", "rack 1 -> spine 2".
  std::string link_name(std::int32_t link) const;

 private:
  // A path within a host, as links numbered from the host's first one.
  struct Path {
    std::vector<std::int32_t> links;
    double latency = 0;
  };
  Network() = default;
  Result<void> place(std::vector<Place> placement);
  void number_links();
  void find_paths();
  std::vector<Path> paths_from(std::int32_t node) const;
  std::int32_t host_link(std::size_t link, bool forward) const;
  std::int32_t nic_link(std::int64_t host, std::int32_t nic, bool out) const;
  std::int32_t uplink(std::int64_t rack, std::int64_t spine, bool up) const;
  std::int64_t rack_of(std::int64_t host) const;
  std::int64_t spine_of(std::int64_t from_port, std::int64_t to_port) const;
  void append(const Path& path, std::int64_t host, std::vector<std::int32_t>& links) const;

  Machine machine_;
  Routing routing_ = Routing::kStaticHash;
  std::uint64_t seed_ = 0;
  std::vector<Place> placement_;
  std::vector<std::int32_t> nics_;       // nodes, in the order in which devices name them
  std::vector<std::int32_t> nic_index_;  // [device]: of nics_
  std::vector<double> capacities_;
  std::int64_t links_per_host_ = 0;                   // of its graph, before those of NICs
  std::int64_t ports_first_ = 0, uplinks_first_ = 0;  // where NICs' links and uplinks begin
  std::int64_t spines_ = 0;                           // uplinks per rack that have own numbers
  std::vector<Path> between_;                         // [device][device]
  std::vector<Path> to_nic_, from_nic_;               // [device]
  std::size_t route_links_max_ = 0;
};

}  // namespace farandole
