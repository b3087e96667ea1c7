// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "model/machine.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <limits>
#include <optional>
#include <set>

namespace farandole {
namespace {

constexpr const char* kRate = "a rate in bytes per second, finite and above 0";
constexpr const char* kTime = "seconds, finite and not negative";

std::string text(double value) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%g", value);
  return buffer;
}

std::string element(const char* list, std::size_t index) {
  return std::string(list) + "[" + std::to_string(index) + "]";
}

bool is_rate(double value) {
  return std::isfinite(value) && value > 0;
}

// Finds the first error. Every message begins with the field, as in "links[2].latency is -1,
// allowed is ...", so that code that reads a file can name the line.
class Checker {
 public:
  explicit Checker(const Machine& machine) : m_(machine) {}

  std::optional<std::string> run() {
    nodes();
    links();
    devices();
    nics();
    network();
    for (std::size_t hop = 0; hop < kHopCount; ++hop) {
      cost(std::string("hops.") + kHopNames[hop], m_.hops[hop]);
    }
    time("reduce_seconds_per_byte", m_.reduce_seconds_per_byte);
    time("copy_seconds_per_byte", m_.copy_seconds_per_byte);
    return wrong_;
  }

 private:
  void require(bool holds, const std::string& field, const std::string& given,
               const std::string& allowed) {
    if (!holds && !wrong_) wrong_ = field + " is " + given + ", allowed is " + allowed + ".";
  }
  void rate(const std::string& field, double value) {
    require(is_rate(value), field, text(value), kRate);
  }
  void time(const std::string& field, double value) {
    require(std::isfinite(value) && value >= 0, field, text(value), kTime);
  }
  void count(const std::string& field, std::int64_t value, std::int64_t least) {
    require(value >= least, field, std::to_string(value),
            "a whole number of at least " + std::to_string(least));
  }
  bool is_node(std::int32_t node) const {
    return node >= 0 && static_cast<std::size_t>(node) < m_.nodes.size();
  }
  void node(const std::string& field, std::int32_t given) {
    require(is_node(given), field, std::to_string(given),
            "a node from 0 to " + std::to_string(static_cast<std::int64_t>(m_.nodes.size()) - 1));
  }
  const Machine::Node& at(std::int32_t index) const {
    return m_.nodes[static_cast<std::size_t>(index)];
  }

  void nodes() {
    std::set<std::string> names;
    for (std::size_t i = 0; i < m_.nodes.size(); ++i) {
      const std::string& name = m_.nodes[i].name;
      require(!name.empty() && names.insert(name).second, element("nodes", i) + ".name",
              "'" + name + "'", "a name that no other node has");
    }
  }

  void links() {
    for (std::size_t i = 0; i < m_.links.size(); ++i) {
      const Machine::Link& link = m_.links[i];
      const std::string field = element("links", i);
      node(field + ".from", link.from);
      node(field + ".to", link.to);
      require(link.from != link.to, field + ".to", std::to_string(link.to),
              "another node than that at the link's other end");
      rate(field + ".bytes_per_second", link.bytes_per_second);
      time(field + ".latency", link.latency);
    }
  }

  void devices() {
    require(!m_.devices.empty(), "devices", "empty", "at least one node on which a rank lives");
    std::set<std::int32_t> seen;
    for (std::size_t i = 0; i < m_.devices.size(); ++i) {
      const std::int32_t device = m_.devices[i];
      const std::string field = element("devices", i);
      node(field, device);
      if (wrong_) return;
      const Machine::Kind kind = at(device).kind;
      require(kind == Machine::Kind::kCpu || kind == Machine::Kind::kGpu, field, at(device).name,
              "a node of kind cpu or gpu");
      require(seen.insert(device).second, field, at(device).name, "a node that is no device yet");
    }
    if (wrong_) return;
    const std::vector<bool> reached = reachable_from(m_.devices[0]);
    for (std::size_t i = 1; i < m_.devices.size(); ++i) {
      require(reached[static_cast<std::size_t>(m_.devices[i])], element("devices", i),
              at(m_.devices[i]).name, "a device that links join with " + at(m_.devices[0]).name);
    }
  }

  void nics() {
    if (wrong_ || (m_.nic_of.empty() && m_.hosts == 1)) return;
    require(m_.nic_of.size() == m_.devices.size(), "nic_of",
            std::to_string(m_.nic_of.size()) + " NICs",
            "one for each of " + std::to_string(m_.devices.size()) + " devices");
    if (wrong_) return;
    const std::vector<bool> reached = reachable_from(m_.devices[0]);
    for (std::size_t i = 0; i < m_.nic_of.size(); ++i) {
      const std::string field = element("nic_of", i);
      node(field, m_.nic_of[i]);
      if (wrong_) return;
      const Machine::Node& nic = at(m_.nic_of[i]);
      require(nic.kind == Machine::Kind::kNic, field, nic.name, "a node of kind nic");
      require(reached[static_cast<std::size_t>(m_.nic_of[i])], field, nic.name,
              "a NIC that links join with " + at(m_.devices[i]).name);
    }
  }

  void network() {
    count("hosts", m_.hosts, 1);
    if (m_.hosts > 1 || m_.nic_bytes_per_second != 0) {
      rate("nic_bytes_per_second", m_.nic_bytes_per_second);
    }
    time("nic_latency", m_.nic_latency);
    count("hosts_per_rack", m_.hosts_per_rack, 0);
    const bool racks = m_.hosts_per_rack > 0 && m_.hosts_per_rack < m_.hosts;
    count("uplinks", m_.uplinks, racks ? 1 : 0);
    if (racks || m_.uplink_bytes_per_second != 0) {
      rate("uplink_bytes_per_second", m_.uplink_bytes_per_second);
    }
    time("uplink_latency", m_.uplink_latency);
  }

  void cost(const std::string& hop, const HopCost& cost) {
    time(hop + ".alpha", cost.alpha);
    time(hop + ".call", cost.call);
    time(hop + ".overhead", cost.overhead);
    time(hop + ".crowding", cost.crowding);
    require(std::isfinite(cost.fill_chunks) && cost.fill_chunks >= 0, hop + ".fill_chunks",
            text(cost.fill_chunks), "a number of messages, finite and not negative");
    require(cost.efficiency > 0 && cost.efficiency <= 1, hop + ".efficiency", text(cost.efficiency),
            "a share above 0, up to 1");
    require(cost.fan_efficiency > 0 && cost.fan_efficiency <= 1, hop + ".fan_efficiency",
            text(cost.fan_efficiency), "a share above 0, up to 1");
    HopCost::RingRate before{.ring_size = 1};
    for (std::size_t i = 0; i < cost.ring_rates.size(); ++i) {
      const HopCost::RingRate& ring = cost.ring_rates[i];
      const std::string field = element((hop + ".ring_rates").c_str(), i);
      // Sorted by size, then by stride, each once.
      const bool may_repeat = i > 0 && ring.stride > before.stride;
      count(field + ".ring_size", ring.ring_size, before.ring_size + (may_repeat ? 0 : 1));
      count(field + ".stride", ring.stride, 0);
      rate(field + ".bytes_per_second", ring.bytes_per_second);
      before = ring;
    }
  }

  std::vector<bool> reachable_from(std::int32_t start) const {
    std::vector<bool> reached(m_.nodes.size());
    reached[static_cast<std::size_t>(start)] = true;
    for (bool grew = true; grew;) {
      grew = false;
      for (const Machine::Link& link : m_.links) {
        const auto from = static_cast<std::size_t>(link.from);
        const auto to = static_cast<std::size_t>(link.to);
        if (reached[from] == reached[to]) continue;
        reached[from] = reached[to] = grew = true;
      }
    }
    return reached;
  }

  const Machine& m_;
  std::optional<std::string> wrong_;
};

}  // namespace

double Machine::rate(const Link& link, bool forward) const {
  const std::int32_t from = forward ? link.from : link.to, to = forward ? link.to : link.from;
  const bool is_read = nodes[static_cast<std::size_t>(from)].kind == Kind::kCpu &&
                       nodes[static_cast<std::size_t>(to)].kind == Kind::kMemory &&
                       !link.half_duplex && std::ranges::find(devices, from) != devices.end();
  return is_read ? std::numeric_limits<double>::infinity() : link.bytes_per_second;
}

Result<void> check(const Machine& machine) {
  if (auto wrong = Checker(machine).run()) return Error{ErrorKind::kInvalidArgument, *wrong};
  return {};
}

}  // namespace farandole
