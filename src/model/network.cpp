// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "model/network.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace farandole {
namespace {

Error invalid(const std::string& what) {
  return {ErrorKind::kInvalidArgument, what};
}

// Spreads three numbers over all 64 bits. Source: the finalizer of SplitMix64 [Steele14].
std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

}  // namespace

Result<Network> Network::create(Machine machine, std::vector<Place> placement, Routing routing,
                                std::uint64_t seed) {
  if (auto checked = check(machine); !checked) return std::move(checked).error();
  Network network;
  network.machine_ = std::move(machine);
  network.routing_ = routing;
  network.seed_ = seed;
  if (auto placed = network.place(std::move(placement)); !placed) return std::move(placed).error();
  network.number_links();
  network.find_paths();
  return network;
}

Result<Network> Network::create(Machine machine, std::int64_t rank_count, Routing routing,
                                std::uint64_t seed) {
  const std::int64_t devices = machine.devices_per_host(), room = machine.hosts * devices;
  if (rank_count < 1 || rank_count > room) {
    return invalid("argument 'rank_count' is " + std::to_string(rank_count) + ", machine \"" +
                   machine.name + "\" has " + std::to_string(room) + " devices.");
  }
  std::vector<Place> placement;
  placement.reserve(static_cast<std::size_t>(rank_count));
  for (std::int64_t r = 0; r < rank_count; ++r) {
    placement.push_back(
        {static_cast<std::int32_t>(r / devices), static_cast<std::int32_t>(r % devices)});
  }
  return create(std::move(machine), std::move(placement), routing, seed);
}

Result<void> Network::place(std::vector<Place> placement) {
  if (placement.empty())
    return invalid("argument 'placement' is empty, allowed is 1 rank or more.");
  for (std::size_t rank = 0; rank < placement.size(); ++rank) {
    const Place at = placement[rank];
    if (at.host >= 0 && at.host < machine_.hosts && at.device >= 0 &&
        at.device < machine_.devices_per_host()) {
      continue;
    }
    return invalid("argument 'placement' puts rank " + std::to_string(rank) + " on device " +
                   std::to_string(at.device) + " of host " + std::to_string(at.host) +
                   ", allowed are devices 0 to " + std::to_string(machine_.devices_per_host() - 1) +
                   " of hosts 0 to " + std::to_string(machine_.hosts - 1) + ".");
  }
  placement_ = std::move(placement);
  return {};
}

// First the graphs of all hosts, two numbers per link, then two per NIC, then two per uplink.
void Network::number_links() {
  for (const std::int32_t node : machine_.nic_of) {
    const auto known = std::find(nics_.begin(), nics_.end(), node);
    nic_index_.push_back(static_cast<std::int32_t>(known - nics_.begin()));
    if (known == nics_.end()) nics_.push_back(node);
  }
  const std::int64_t hosts = machine_.hosts, nics = std::ssize(nics_);
  links_per_host_ = 2 * std::ssize(machine_.links);
  ports_first_ = hosts * links_per_host_;
  uplinks_first_ = ports_first_ + 2 * hosts * nics;
  const bool racks = machine_.hosts_per_rack > 0 && machine_.hosts_per_rack < hosts;
  spines_ = racks ? (routing_ == Routing::kIdeal ? 1 : machine_.uplinks) : 0;
  const std::int64_t rack_count = racks ? rack_of(hosts - 1) + 1 : 0;
  capacities_.reserve(static_cast<std::size_t>(uplinks_first_ + 2 * rack_count * spines_));
  for (std::int64_t host = 0; host < hosts; ++host) {
    for (const Machine::Link& link : machine_.links) {
      for (const bool forward : {true, false}) {
        capacities_.push_back(machine_.rate(link, forward));
      }
    }
  }
  capacities_.insert(capacities_.end(), static_cast<std::size_t>(2 * hosts * nics),
                     machine_.nic_bytes_per_second);
  const double together = routing_ == Routing::kIdeal ? static_cast<double>(machine_.uplinks) : 1.0;
  capacities_.insert(capacities_.end(), static_cast<std::size_t>(2 * rack_count * spines_),
                     together * machine_.uplink_bytes_per_second);
}

void Network::find_paths() {
  std::vector<std::vector<Path>> from_nics;
  for (const std::int32_t nic : nics_) from_nics.push_back(paths_from(nic));
  std::size_t inside = 0, outside = 0;
  for (std::size_t device = 0; device < machine_.devices.size(); ++device) {
    std::vector<Path> paths = paths_from(machine_.devices[device]);
    for (const std::int32_t other : machine_.devices) {
      between_.push_back(paths[static_cast<std::size_t>(other)]);
      inside = std::max(inside, between_.back().links.size());
    }
    if (nics_.empty()) continue;
    const auto nic = static_cast<std::size_t>(nic_index_[device]);
    const auto node = static_cast<std::size_t>(machine_.devices[device]);
    to_nic_.push_back(std::move(paths[static_cast<std::size_t>(nics_[nic])]));
    from_nic_.push_back(from_nics[nic][node]);
    outside = std::max({outside, to_nic_.back().links.size(), from_nic_.back().links.size()});
  }
  route_links_max_ = std::max(inside, 2 * outside + 4);
}

// By distance from `node`: each node takes the link from a nearer one with the highest rate along
// the whole path.
std::vector<Network::Path> Network::paths_from(std::int32_t node) const {
  std::vector<Path> paths(machine_.nodes.size());
  std::vector<double> rates(machine_.nodes.size(), 0);
  rates[static_cast<std::size_t>(node)] = std::numeric_limits<double>::infinity();
  for (bool grew = true; grew;) {
    grew = false;
    const std::vector<double> before = rates;  // of nodes that are nearer than those now reached
    for (std::size_t link = 0; link < machine_.links.size(); ++link) {
      for (const bool forward : {true, false}) {
        const Machine::Link& wire = machine_.links[link];
        const auto from = static_cast<std::size_t>(forward ? wire.from : wire.to);
        const auto to = static_cast<std::size_t>(forward ? wire.to : wire.from);
        const double rate = std::min(before[from], wire.bytes_per_second);
        if (before[to] > 0 || rate <= rates[to]) continue;
        rates[to] = rate;
        paths[to] = paths[from];
        paths[to].links.push_back(host_link(link, forward));
        paths[to].latency += wire.latency;
        grew = true;
      }
    }
  }
  return paths;
}

std::int32_t Network::host_link(std::size_t link, bool forward) const {
  const bool second = !forward && !machine_.links[link].half_duplex;
  return static_cast<std::int32_t>(2 * link + (second ? 1 : 0));
}

std::int32_t Network::nic_link(std::int64_t host, std::int32_t nic, bool out) const {
  return static_cast<std::int32_t>(ports_first_ + 2 * (host * std::ssize(nics_) + nic) +
                                   (out ? 0 : 1));
}

std::int32_t Network::uplink(std::int64_t rack, std::int64_t spine, bool up) const {
  return static_cast<std::int32_t>(uplinks_first_ + 2 * (rack * spines_ + spine) + (up ? 0 : 1));
}

std::int64_t Network::rack_of(std::int64_t host) const {
  return machine_.hosts_per_rack > 0 ? host / machine_.hosts_per_rack : 0;
}

std::int64_t Network::spine_of(std::int64_t from_port, std::int64_t to_port) const {
  const auto from = static_cast<std::uint64_t>(from_port), to = static_cast<std::uint64_t>(to_port);
  const auto spines = static_cast<std::uint64_t>(spines_);
  switch (routing_) {
    case Routing::kStaticHash:
      return static_cast<std::int64_t>(mixed(mixed(mixed(seed_) + from) + to) % spines);
    case Routing::kDestination:
      return static_cast<std::int64_t>(to % spines);
    case Routing::kIdeal:
      break;
  }
  return 0;
}

Hop Network::hop(std::int32_t from, std::int32_t to) const {
  const std::int32_t a = host(from), b = host(to);
  if (a == b) return Hop::kHost;
  return rack_of(a) == rack_of(b) ? Hop::kRack : Hop::kFabric;
}

void Network::append(const Path& path, std::int64_t host, std::vector<std::int32_t>& links) const {
  const auto first = static_cast<std::int32_t>(host * links_per_host_);
  for (const std::int32_t link : path.links) links.push_back(first + link);
}

Network::Route Network::route(std::int32_t from, std::int32_t to,
                              std::vector<std::int32_t>& links) const {
  const Place a = placement_[static_cast<std::size_t>(from)];
  const Place b = placement_[static_cast<std::size_t>(to)];
  const auto at = static_cast<std::size_t>(a.device), other = static_cast<std::size_t>(b.device);
  if (a.host == b.host) {
    const Path& path = between_[at * machine_.devices.size() + other];
    append(path, a.host, links);
    return {Hop::kHost, path.latency};
  }
  const std::int32_t out = nic_index_[at], in = nic_index_[other];
  append(to_nic_[at], a.host, links);
  links.push_back(nic_link(a.host, out, true));
  Route route{Hop::kRack,
              to_nic_[at].latency + 2 * machine_.nic_latency + from_nic_[other].latency};
  const std::int64_t from_rack = rack_of(a.host), to_rack = rack_of(b.host);
  if (from_rack != to_rack) {
    const std::int64_t nics = std::ssize(nics_);
    const std::int64_t spine = spine_of(a.host * nics + out, b.host * nics + in);
    links.push_back(uplink(from_rack, spine, true));
    links.push_back(uplink(to_rack, spine, false));
    route.hop = Hop::kFabric;
    route.latency += 2 * machine_.uplink_latency;
  }
  links.push_back(nic_link(b.host, in, false));
  append(from_nic_[other], b.host, links);
  return route;
}

std::string Network::link_name(std::int32_t link) const {
  if (link >= uplinks_first_) {
    const std::int64_t at = (link - uplinks_first_) / 2, rack = at / spines_;
    const std::string spine =
        routing_ == Routing::kIdeal ? "spines" : "spine " + std::to_string(at % spines_);
    const std::string name = "rack " + std::to_string(rack);
    return (link - uplinks_first_) % 2 == 0 ? name + " -> " + spine : spine + " -> " + name;
  }
  const auto node = [&](std::int32_t index) {
    return machine_.nodes[static_cast<std::size_t>(index)].name;
  };
  if (link >= ports_first_) {
    const std::int64_t at = (link - ports_first_) / 2, nics = std::ssize(nics_);
    const std::string name = node(nics_[static_cast<std::size_t>(at % nics)]);
    return "host " + std::to_string(at / nics) + ": " +
           ((link - ports_first_) % 2 == 0 ? name + " -> switch" : "switch -> " + name);
  }
  const std::int64_t in_host = link % links_per_host_;
  const Machine::Link& wire = machine_.links[static_cast<std::size_t>(in_host / 2)];
  const std::string a = node(wire.from), b = node(wire.to);
  return "host " + std::to_string(link / links_per_host_) + ": " +
         (wire.half_duplex   ? a + " - " + b
          : in_host % 2 == 0 ? a + " -> " + b
                             : b + " -> " + a);
}

}  // namespace farandole
