// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "planner/levels.hpp"

#include <algorithm>
#include <deque>
#include <utility>

namespace farandole {
namespace {

std::size_t index(std::int64_t number) {
  return static_cast<std::size_t>(number);
}

std::size_t index(Hop hop) {
  return static_cast<std::size_t>(hop);
}

/// Calls visit(peer) for every rank that `rank` sends to.
template <class Visit>
void each_peer(const Pattern& pattern, std::int64_t rank, std::int64_t rank_count, Visit visit) {
  const std::int64_t stride = pattern.stride, size = pattern.size;
  const auto send = [&](std::int64_t peer) {
    if (peer != rank && peer >= 0 && peer < rank_count) visit(peer);
  };
  if (rank % pattern.every != 0) return;
  const std::int64_t digit = rank / stride % size;
  switch (pattern.kind) {
    case Pattern::Kind::kBothWays:
      send(digit > 0 ? rank - stride : rank + (size - 1) * stride);
      [[fallthrough]];
    case Pattern::Kind::kRing:
    case Pattern::Kind::kCycle:
      return send(digit + 1 < size ? rank + stride : rank - digit * stride);
    case Pattern::Kind::kAll:
      for (std::int64_t i = 0; i < size; ++i) send(rank + (i - digit) * stride);
      return;
    case Pattern::Kind::kFan:
      if ((pattern.group > 0 ? rank % pattern.group : rank) >= pattern.senders) return;
      for (std::int64_t i = 1; i < size; ++i) send(rank + i * stride);
      return;
    case Pattern::Kind::kRotate:
      return send((rank + stride) % rank_count);
  }
}

}  // namespace

/// How many messages of one round use each link, NIC and rack.
struct Levels::Loads {
  std::vector<double> links;           // [2 * link + direction]
  std::vector<std::uint8_t> hops;      // [2 * link + direction]: bit per hop that uses it
  std::vector<double> nics;            // [node]: out of the host
  std::vector<std::uint8_t> nic_hops;  // [node]
  double rack = 0;                     // out of the first rack
  std::array<double, kHopCount> latency{};
  std::array<std::int64_t, kHopCount> sent_max{};  // messages of one rank
  // Messages of all ranks, over Hop::kHost only of this host's; counted only if messages pay for
  // each other.
  std::array<std::int64_t, kHopCount> crowd{};
  std::uint8_t used = 0;  // bit per hop

  /// Begins another host; counts of messages that leave hosts stay.
  void clear(const Machine& machine) {
    links.assign(2 * machine.links.size(), 0);
    hops.assign(links.size(), 0);
    nics.assign(machine.nodes.size(), 0);
    nic_hops.assign(nics.size(), 0);
    latency = {};
    sent_max = {};
    crowd[index(Hop::kHost)] = 0;
    used = 0;
  }
};

Levels::Levels(const Machine& machine, const Placement& placement)
    : machine_(machine), placement_(placement) {
  const std::int64_t p = placement_.rank_count;
  const std::int64_t wanted =
      placement_.ranks_per_host > 0 ? placement_.ranks_per_host : machine_.devices_per_host();
  ranks_per_host_ = std::clamp<std::int64_t>(wanted, 1, p);
  hosts_ = (p + ranks_per_host_ - 1) / ranks_per_host_;
  const std::int64_t hosts_per_rack =
      machine_.hosts_per_rack > 0 ? machine_.hosts_per_rack : hosts_;
  ranks_per_rack_ = std::min(p, ranks_per_host_ * hosts_per_rack);
  find_routes();
}

Levels Levels::uniform(std::int64_t rank_count, double alpha, double beta) {
  Machine machine;
  machine.name = "uniform";
  machine.nodes.push_back({"switch", Machine::Kind::kSwitch});
  for (std::int64_t rank = 0; rank < rank_count; ++rank) {
    const auto node = static_cast<std::int32_t>(machine.nodes.size());
    machine.nodes.push_back({"rank" + std::to_string(rank), Machine::Kind::kCpu});
    machine.links.push_back({node, 0, 1 / beta});
    machine.devices.push_back(node);
  }
  machine.hops[index(Hop::kHost)].alpha = alpha;
  return {machine, {.rank_count = rank_count}};
}

std::int64_t Levels::host_of(std::int64_t rank) const {
  return placement_.scattered ? rank % hosts_ : rank / ranks_per_host_;
}
std::int64_t Levels::local_of(std::int64_t rank) const {
  return placement_.scattered ? rank / hosts_ : rank % ranks_per_host_;
}
std::int64_t Levels::rank_at(std::int64_t host, std::int64_t local) const {
  return placement_.scattered ? local * hosts_ + host : host * ranks_per_host_ + local;
}
std::int64_t Levels::rack_of(std::int64_t rank) const {
  return machine_.hosts_per_rack > 0 ? host_of(rank) / machine_.hosts_per_rack : 0;
}
std::size_t Levels::device_of(std::int64_t rank) const {
  return index(local_of(rank) % std::max<std::int64_t>(1, machine_.devices_per_host()));
}

Hop Levels::hop_between(std::int64_t from, std::int64_t to) const {
  if (host_of(from) == host_of(to)) return Hop::kHost;
  return rack_of(from) == rack_of(to) ? Hop::kRack : Hop::kFabric;
}

/// Finds the path of fewest links from each device to every node, the widest one among several.
/// Devices that have one link each, of the same rate and to the same node, share a table of paths
/// from there: else a host of thousands of ranks would need thousands of tables.
void Levels::find_routes() {
  const std::size_t nodes = machine_.nodes.size();
  std::vector<std::vector<Step>> at(nodes);  // steps out of each node
  for (std::size_t i = 0; i < machine_.links.size(); ++i) {
    const Machine::Link& link = machine_.links[i];
    const auto number = static_cast<std::int32_t>(2 * i);
    at[index(link.from)].push_back({number, link.to});
    at[index(link.to)].push_back({number + 1, link.from});
  }
  std::map<std::pair<std::int32_t, double>, std::size_t> shared;  // by start and width
  for (const std::int32_t device : machine_.devices) {
    Start start{.node = device};
    double width = 1e300;
    if (const auto& steps = at[index(device)]; steps.size() == 1) {
      start.node = steps[0].node;
      start.step = {steps[0].link, device};
      width = machine_.links[index(steps[0].link / 2)].bytes_per_second;
    }
    const auto [known, is_new] = shared.try_emplace({start.node, width}, routes_.size());
    if (is_new) routes_.push_back(routes_from(start.node, width, at));
    start.table = known->second;
    starts_.push_back(start);
  }
}

std::vector<Levels::Step> Levels::routes_from(std::int32_t start, double width,
                                              const std::vector<std::vector<Step>>& at) const {
  const std::size_t nodes = at.size();
  std::vector<Step> last(nodes);
  std::vector<std::int32_t> links(nodes, -1);
  std::vector<double> widths(nodes, 0);
  std::deque<std::int32_t> open = {start};
  links[index(start)] = 0;
  widths[index(start)] = width;
  for (; !open.empty(); open.pop_front()) {
    const std::int32_t node = open.front();
    for (const Step& step : at[index(node)]) {
      const std::size_t next = index(step.node);
      const double rate = machine_.links[index(step.link / 2)].bytes_per_second;
      const double wide = std::min(widths[index(node)], rate);
      const bool nearer = links[next] < 0;
      const bool wider = links[next] == links[index(node)] + 1 && wide > widths[next];
      if (!nearer && !wider) continue;
      if (nearer) open.push_back(step.node);
      links[next] = links[index(node)] + 1;
      widths[next] = wide;
      last[next] = {step.link, node};
    }
  }
  return last;
}

/// `back`: from the node to the device.
void Levels::add_path(Loads& loads, std::size_t device, std::int32_t node, Hop hop,
                      bool back) const {
  double latency = 0;
  const Start& start = starts_[device];
  while (node != machine_.devices[device]) {
    const Step& step = node == start.node ? start.step : routes_[start.table][index(node)];
    if (step.link < 0) break;
    const Machine::Link& link = machine_.links[index(step.link / 2)];
    const std::int32_t used = back ? step.link ^ 1 : step.link;
    loads.links[index(used)] += 1;
    loads.hops[index(used)] |= static_cast<std::uint8_t>(1u << index(hop));
    latency += link.latency;
    node = step.node;
  }
  double& most = loads.latency[index(hop)];
  most = std::max(most, latency);
}

void Levels::add_flow(Loads& loads, const Pattern& pattern, std::int64_t from,
                      std::int64_t to) const {
  const Hop hop = hop_between(from, to);
  const auto bit = static_cast<std::uint8_t>(1u << index(hop));
  loads.used |= bit;
  if (routes_.empty()) return;
  const std::size_t device = device_of(from);
  if (hop == Hop::kHost) {
    return add_path(loads, device, machine_.devices[device_of(to)], hop, pattern.inward);
  }
  if (device >= machine_.nic_of.size()) return;
  const std::int32_t nic = machine_.nic_of[device];
  if (!pattern.inward) add_path(loads, device, nic, hop, false);
  // The path of messages that come in, or that come in while others go out.
  if (pattern.inward || pattern.kind != Pattern::Kind::kFan) {
    add_path(loads, device, nic, hop, true);
  }
  loads.nics[index(nic)] += 1;
  loads.nic_hops[index(nic)] |= bit;
}

/// Counts the messages that leave the first rack.
void Levels::add_rack_flows(Loads& loads, const Pattern& pattern) const {
  for (std::int64_t rank = 0; rank < rank_count(); ++rank) {
    if (rack_of(rank) != 0) {
      if (placement_.scattered) continue;
      return;
    }
    each_peer(pattern, rank, rank_count(), [&](std::int64_t peer) {
      if (rack_of(peer) != 0) loads.rack += 1;
    });
  }
}

/// Counts the messages of all hosts that leave their host.
void Levels::count_crowd(const Pattern& pattern, Loads& loads) const {
  if (extras(Hop::kRack).crowding <= 0 && extras(Hop::kFabric).crowding <= 0) return;
  for (std::int64_t rank = 0; rank < rank_count(); ++rank) {
    each_peer(pattern, rank, rank_count(),
              [&](std::int64_t peer) { ++loads.crowd[index(hop_between(rank, peer))]; });
  }
}

double Levels::ring_rate(Hop hop, const Pattern& pattern) const {
  if (pattern.kind != Pattern::Kind::kRing) return 0;
  double rate = 0;
  for (const HopCost::RingRate& measured : extras(hop).ring_rates) {
    const bool meant = measured.stride == 0 || measured.stride == pattern.stride;
    if (meant && measured.ring_size == pattern.size) rate = measured.bytes_per_second;
  }
  return rate;
}

/// The costs at the hosts of the first rack, each hop at the host where it is slowest; without
/// racks, those at the first host.
Levels::HopTable Levels::measure(const Pattern& pattern) const {
  HopTable table{};
  Loads loads;
  const bool racks = machine_.hosts_per_rack > 0 && ranks_per_rack_ < rank_count();
  if (racks) add_rack_flows(loads, pattern);
  count_crowd(pattern, loads);
  const std::int64_t hosts = racks ? machine_.hosts_per_rack : 1;
  for (std::int64_t host = 0; host < hosts; ++host) measure_host(host, pattern, loads, table);
  return table;
}

void Levels::measure_host(std::int64_t host, const Pattern& pattern, Loads& loads,
                          HopTable& table) const {
  loads.clear(machine_);
  for (std::int64_t local = 0; local < ranks_per_host_; ++local) {
    const std::int64_t rank = rank_at(host, local);
    if (rank >= rank_count()) break;
    std::array<std::int64_t, kHopCount> sent{};
    each_peer(pattern, rank, rank_count(), [&](std::int64_t peer) {
      add_flow(loads, pattern, rank, peer);
      ++sent[index(hop_between(rank, peer))];
    });
    for (std::size_t hop = 0; hop < kHopCount; ++hop) {
      loads.sent_max[hop] = std::max(loads.sent_max[hop], sent[hop]);
    }
    loads.crowd[index(Hop::kHost)] += sent[index(Hop::kHost)];
  }
  for (const Hop hop : {Hop::kHost, Hop::kRack, Hop::kFabric}) {
    if ((loads.used >> index(hop) & 1) == 0) continue;
    const RoundCost cost{hop, start_up(loads, hop), seconds_per_byte(loads, hop, pattern)};
    std::optional<RoundCost>& slowest = table[index(hop)];
    if (!slowest) slowest = RoundCost{.hop = hop};
    slowest->alpha = std::max(slowest->alpha, cost.alpha);
    slowest->seconds_per_byte = std::max(slowest->seconds_per_byte, cost.seconds_per_byte);
  }
}

double Levels::start_up(const Loads& loads, Hop hop) const {
  // A message that leaves its host passes the links of two hosts.
  const double hosts = hop == Hop::kHost ? 1 : 2;
  double seconds = extras(hop).alpha + loads.latency[index(hop)] * hosts;
  if (hop != Hop::kHost) seconds += 2 * machine_.nic_latency;
  if (hop == Hop::kFabric) seconds += 2 * machine_.uplink_latency;
  const std::int64_t more = std::max<std::int64_t>(0, loads.sent_max[index(hop)] - 1);
  const std::int64_t around = std::max<std::int64_t>(0, loads.crowd[index(hop)] - 1);
  return seconds + static_cast<double>(more) * extras(hop).overhead +
         static_cast<double>(around) * extras(hop).crowding;
}

double Levels::seconds_per_byte(const Loads& loads, Hop hop, const Pattern& pattern) const {
  const double fan = loads.sent_max[index(hop)] > 1 ? extras(hop).fan_efficiency : 1;
  const double efficiency = extras(hop).efficiency * fan;
  if (const double rate = ring_rate(hop, pattern); rate > 0) return 1 / rate / efficiency;
  double slowest = 0;
  for (std::size_t i = 0; i < loads.links.size(); ++i) {
    if ((loads.hops[i] >> index(hop) & 1) == 0) continue;
    const Machine::Link& link = machine_.links[i / 2];
    const double load = loads.links[i] + (link.half_duplex ? loads.links[i ^ 1] : 0);
    slowest = std::max(slowest, load / machine_.rate(link, i % 2 == 0));
  }
  for (std::size_t node = 0; node < loads.nics.size(); ++node) {
    if ((loads.nic_hops[node] >> index(hop) & 1) == 0) continue;
    slowest = std::max(slowest, loads.nics[node] / machine_.nic_bytes_per_second);
  }
  if (hop == Hop::kFabric && machine_.uplinks > 0) {
    const double uplinks = static_cast<double>(machine_.uplinks) * machine_.uplink_bytes_per_second;
    slowest = std::max(slowest, loads.rack / uplinks);
  }
  return slowest / efficiency;
}

const Levels::HopTable& Levels::costs(const Pattern& pattern) {
  auto found = known_.find(pattern);
  if (found == known_.end()) found = known_.emplace(pattern, measure(pattern)).first;
  return found->second;
}

RoundCost Levels::round(const Pattern& pattern, double bytes) {
  RoundCost slowest;
  for (const std::optional<RoundCost>& cost : costs(pattern)) {
    if (cost && cost->seconds(bytes) >= slowest.seconds(bytes)) slowest = *cost;
  }
  return slowest;
}

double Levels::call(const Pattern& pattern) {
  double dearest = 0;
  for (const std::optional<RoundCost>& cost : costs(pattern)) {
    if (cost) dearest = std::max(dearest, extras(cost->hop).call);
  }
  return dearest;
}

std::array<std::int64_t, kHopCount> Levels::hop_distances() const {
  std::array<std::int64_t, kHopCount> distances{};
  for (std::int64_t rank = rank_count() - 1; rank > 0; --rank) {
    distances[index(hop_between(0, rank))] = rank;
  }
  return distances;
}

std::array<std::int64_t, kHopCount> Levels::chain_hops() const {
  std::array<std::int64_t, kHopCount> count{};
  for (std::int64_t rank = 1; rank < rank_count(); ++rank) {
    ++count[index(hop_between(rank - 1, rank))];
  }
  return count;
}

}  // namespace farandole
