// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "model/machine.hpp"

namespace farandole {

inline constexpr double kAlpha = 3e-6, kRate = 1e10;
inline constexpr double kFast = 1e18;  // bytes per second: a wire that takes no time

/// `hosts` hosts of `devices` devices each, every device on a switch of its host by a wire of
/// `wire_rate`, and `nics` NICs of kRate, each shared by neighbours.
inline Machine machine_of(std::int64_t hosts, std::int32_t devices, std::int32_t nics,
                          double wire_rate) {
  Machine machine;
  machine.name = "test";
  machine.nodes.push_back({"switch", Machine::Kind::kSwitch});
  const auto add = [&](const std::string& name, Machine::Kind kind, double rate) {
    const auto node = static_cast<std::int32_t>(machine.nodes.size());
    machine.nodes.push_back({name, kind});
    machine.links.push_back({node, 0, rate, false, 0});
    return node;
  };
  for (std::int32_t i = 0; i < nics; ++i) {
    add("nic" + std::to_string(i), Machine::Kind::kNic, kFast);
  }
  for (std::int32_t i = 0; i < devices; ++i) {
    machine.devices.push_back(add("gpu" + std::to_string(i), Machine::Kind::kGpu, wire_rate));
    machine.nic_of.push_back(1 + i * nics / devices);
  }
  machine.hosts = hosts;
  machine.nic_bytes_per_second = kRate;
  for (HopCost& hop : machine.hops) hop.alpha = kAlpha;
  return machine;
}

/// Every rank on a port of its own of one switch: nothing is shared.
inline Machine crossbar(std::int64_t ranks) {
  return machine_of(ranks, 1, 1, kFast);
}

/// Hosts of 4 devices behind one NIC.
inline Machine shared_nic(std::int64_t hosts) {
  Machine machine = machine_of(hosts, 4, 1, 5 * kRate);
  machine.hops[0].alpha = kAlpha / 4;
  machine.nic_latency = 1e-6;
  return machine;
}

/// Racks of 4 hosts, each of 4 devices behind 2 NICs, with a third of the bandwidth above.
inline Machine thin_core(std::int64_t hosts) {
  Machine machine = machine_of(hosts, 4, 2, 3 * kRate);
  machine.hosts_per_rack = 4;
  machine.uplinks = 4;
  machine.uplink_bytes_per_second = kRate * 8 / 3 / 4;
  machine.uplink_latency = 1e-6;
  machine.hops[0].alpha = kAlpha / 4;
  machine.hops[2].alpha = 2 * kAlpha;
  return machine;
}

}  // namespace farandole
