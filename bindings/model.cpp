// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings.hpp"
#include "model/machine.hpp"

namespace nb = nanobind;

namespace farandole::bindings {
namespace {

constexpr const char* kKindNames[] = {"cpu", "gpu", "memory", "switch", "nic"};  // as Machine::Kind

using NodeTuple = std::pair<std::string, std::string>;  // name, kind
using Link = Machine::Link;
using Ends = std::pair<std::int32_t, std::int32_t>;     // nodes
using RingKey = std::pair<std::int64_t, std::int64_t>;  // size, stride
using HopTable = std::map<std::string, nb::dict>;

template <class Names>
std::size_t find_name(const char* field, const std::string& given, const Names& names) {
  const auto found = std::ranges::find(names, std::string_view(given));
  if (found != std::end(names)) return static_cast<std::size_t>(found - std::begin(names));
  std::string allowed;
  for (const std::string_view name : names) (allowed += allowed.empty() ? "" : ", ") += name;
  raise({ErrorKind::kInvalidArgument,
         std::string(field) + " is '" + given + "', allowed are " + allowed + "."});
}

HopCost make_cost(const std::string& hop, const nb::dict& given) {
  HopCost cost;
  for (const auto& [key, value] : given) {
    const auto name = nb::cast<std::string>(key);
    if (name == "ring_rates") {
      for (const auto& [ring, rate] : nb::cast<std::map<RingKey, double>>(value)) {
        cost.ring_rates.push_back({ring.first, rate, ring.second});
      }
      continue;
    }
    double* const numbers[] = {&cost.alpha,         &cost.call,     &cost.fill_chunks,
                               &cost.overhead,      &cost.crowding, &cost.efficiency,
                               &cost.fan_efficiency};
    constexpr std::string_view kNames[] = {"alpha",    "call",       "fill_chunks",   "overhead",
                                           "crowding", "efficiency", "fan_efficiency"};
    *numbers[find_name(("hops." + hop).c_str(), name, kNames)] = nb::cast<double>(value);
  }
  return cost;
}

nb::dict cost_dict(const HopCost& cost) {
  nb::dict rates;
  for (const auto& ring : cost.ring_rates) {
    rates[nb::make_tuple(ring.ring_size, ring.stride)] = ring.bytes_per_second;
  }
  nb::dict row;
  row["alpha"] = cost.alpha;
  row["call"] = cost.call;
  row["fill_chunks"] = cost.fill_chunks;
  row["overhead"] = cost.overhead;
  row["crowding"] = cost.crowding;
  row["efficiency"] = cost.efficiency;
  row["fan_efficiency"] = cost.fan_efficiency;
  row["ring_rates"] = rates;
  return row;
}

void make(Machine* self, std::string name, const std::vector<NodeTuple>& nodes,
          std::vector<Link> links, std::vector<std::int32_t> devices,
          std::vector<std::int32_t> nic_of, std::int64_t hosts, double nic_bytes_per_second,
          double nic_latency, std::int64_t hosts_per_rack, std::int64_t uplinks,
          double uplink_bytes_per_second, double uplink_latency, const HopTable& hops,
          double reduce_seconds_per_byte, double copy_seconds_per_byte) {
  Machine machine;
  machine.name = std::move(name);
  for (const auto& [node, kind] : nodes) {
    machine.nodes.push_back(
        {node, static_cast<Machine::Kind>(find_name("nodes.kind", kind, kKindNames))});
  }
  machine.links = std::move(links);
  machine.devices = std::move(devices);
  machine.nic_of = std::move(nic_of);
  machine.hosts = hosts;
  machine.nic_bytes_per_second = nic_bytes_per_second;
  machine.nic_latency = nic_latency;
  machine.hosts_per_rack = hosts_per_rack;
  machine.uplinks = uplinks;
  machine.uplink_bytes_per_second = uplink_bytes_per_second;
  machine.uplink_latency = uplink_latency;
  for (const auto& [hop, cost] : hops) {
    machine.hops[find_name("hops", hop, kHopNames)] = make_cost(hop, cost);
  }
  machine.reduce_seconds_per_byte = reduce_seconds_per_byte;
  machine.copy_seconds_per_byte = copy_seconds_per_byte;
  take(check(machine));
  new (self) Machine(std::move(machine));
}

std::vector<NodeTuple> nodes_of(const Machine& machine) {
  std::vector<NodeTuple> rows;
  for (const auto& [name, kind] : machine.nodes) {
    rows.emplace_back(name, kKindNames[static_cast<std::size_t>(kind)]);
  }
  return rows;
}

nb::dict hops_of(const Machine& machine) {
  nb::dict rows;
  for (std::size_t hop = 0; hop < kHopCount; ++hop) {
    rows[kHopNames[hop]] = cost_dict(machine.hops[hop]);
  }
  return rows;
}

void bind_link(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<Link>(module, "Link")
      .def(
          "__init__",
          [](Link* self, Ends ends, double bytes_per_second, bool half_duplex, double latency) {
            new (self) Link{ends.first, ends.second, bytes_per_second, half_duplex, latency};
          },
          nb::kw_only(), "ends"_a, "bytes_per_second"_a, "half_duplex"_a = false, "latency"_a = 0.0)
      .def_prop_ro("ends", [](const Link& self) { return Ends(self.from, self.to); })
      .def_ro("bytes_per_second", &Link::bytes_per_second)
      .def_ro("half_duplex", &Link::half_duplex)
      .def_ro("latency", &Link::latency)
      .def("__eq__", [](const Link& a, const Link& b) { return a == b; });
}

}  // namespace

void bind_model(nb::module_& module) {
  using namespace nb::literals;
  nb::list kinds;
  for (const char* kind : kKindNames) kinds.append(kind);
  module.attr("NODE_KINDS") = kinds;
  nb::list hops;
  for (const char* hop : kHopNames) hops.append(hop);
  module.attr("HOPS") = hops;
  bind_link(module);
  nb::class_<Machine>(module, "Machine")
      .def("__init__", &make, nb::kw_only(), "name"_a, "nodes"_a, "links"_a, "devices"_a,
           "nic_of"_a = std::vector<std::int32_t>{}, "hosts"_a = 1, "nic_bytes_per_second"_a = 0.0,
           "nic_latency"_a = 0.0, "hosts_per_rack"_a = 0, "uplinks"_a = 0,
           "uplink_bytes_per_second"_a = 0.0, "uplink_latency"_a = 0.0, "hops"_a = HopTable{},
           "reduce_seconds_per_byte"_a = 0.0, "copy_seconds_per_byte"_a = 0.0)
      .def_ro("name", &Machine::name)
      .def_prop_ro("nodes", &nodes_of)
      .def_ro("links", &Machine::links)
      .def_ro("devices", &Machine::devices)
      .def_ro("nic_of", &Machine::nic_of)
      .def_ro("hosts", &Machine::hosts)
      .def_ro("nic_bytes_per_second", &Machine::nic_bytes_per_second)
      .def_ro("nic_latency", &Machine::nic_latency)
      .def_ro("hosts_per_rack", &Machine::hosts_per_rack)
      .def_ro("uplinks", &Machine::uplinks)
      .def_ro("uplink_bytes_per_second", &Machine::uplink_bytes_per_second)
      .def_ro("uplink_latency", &Machine::uplink_latency)
      .def_prop_ro("hops", &hops_of)
      .def_ro("reduce_seconds_per_byte", &Machine::reduce_seconds_per_byte)
      .def_ro("copy_seconds_per_byte", &Machine::copy_seconds_per_byte)
      .def_prop_ro("devices_per_host", &Machine::devices_per_host)
      .def("__eq__", [](const Machine& a, const Machine& b) { return a == b; });
}

}  // namespace farandole::bindings
