// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "planner/levels.hpp"

#include <gtest/gtest.h>

namespace farandole {
namespace {

constexpr double kNic = 10e9, kWire = 50e9;

/// Four devices, each joined to each other, two of them on each of two NICs; racks of four hosts
/// whose uplinks carry half of what its eight NICs could.
Machine four_by_two() {
  Machine machine;
  for (int i = 0; i < 4; ++i) machine.nodes.push_back({"gpu", Machine::Kind::kGpu});
  for (int i = 0; i < 2; ++i) machine.nodes.push_back({"nic", Machine::Kind::kNic});
  for (std::int32_t i = 0; i < 4; ++i) {
    for (std::int32_t j = i + 1; j < 4; ++j) machine.links.push_back({i, j, kWire, false, 1e-6});
    machine.links.push_back({i, 4 + i / 2, 4 * kWire});
    machine.devices.push_back(i);
    machine.nic_of.push_back(4 + i / 2);
  }
  machine.hosts = 16;
  machine.hosts_per_rack = 4;
  machine.nic_bytes_per_second = kNic;
  machine.nic_latency = 2e-6;
  machine.uplinks = 4;
  machine.uplink_bytes_per_second = kNic;
  machine.uplink_latency = 3e-6;
  machine.hops[0].alpha = 5e-6;
  machine.hops[1].alpha = machine.hops[2].alpha = 10e-6;
  return machine;
}

void expect_cost(const RoundCost& cost, Hop hop, double alpha, double seconds_per_byte) {
  EXPECT_EQ(cost.hop, hop);
  EXPECT_DOUBLE_EQ(cost.alpha, alpha);
  EXPECT_DOUBLE_EQ(cost.seconds_per_byte, seconds_per_byte);
}

// Goal: each layer of a hierarchy goes as far as it does, and is shared by as many as cross it.
// Method: 4 x 4 x 4 on four devices, hosts and racks, by hand.
TEST(Levels, LayersCrossWhatTheyCross) {
  Levels levels(four_by_two(), {.rank_count = 64});
  expect_cost(levels.round(Pattern::ring(1, 4), 1e6), Hop::kHost, 6e-6, 1 / kWire);
  // All four devices leave, two on each NIC.
  expect_cost(levels.round(Pattern::ring(4, 4), 1e6), Hop::kRack, 14e-6, 2 / kNic);
  // All 16 ranks of a rack leave over 4 uplinks.
  expect_cost(levels.round(Pattern::ring(16, 4), 1e6), Hop::kFabric, 20e-6, 4 / kNic);
  // A ring through everything leaves a host, and a rack, once.
  EXPECT_DOUBLE_EQ(levels.round(Pattern::ring(1, 64), 1e6).seconds_per_byte, 1 / kNic);
  // Everybody to everybody else: 3 rounds' worth on every wire, 2 x 60 on a NIC, 16 x 48 up.
  expect_cost(levels.round(Pattern::all(1, 64), 1e6), Hop::kFabric, 20e-6, 16.0 * 48 / 4 / kNic);
}

// Goal: ranks that are dealt out to hosts in turn are far from their neighbours.
TEST(Levels, ScatteredNeighboursAreFar) {
  Levels levels(four_by_two(), {.rank_count = 16, .ranks_per_host = 4, .scattered = true});
  expect_cost(levels.round(Pattern::ring(1, 16), 1e6), Hop::kRack, 14e-6, 2 / kNic);
  expect_cost(levels.round(Pattern::ring(4, 4), 1e6), Hop::kHost, 6e-6, 1 / kWire);
}

// Goal: each extension does what machine.hpp says, and nothing where it is not set.
TEST(Levels, Extensions) {
  Machine machine = four_by_two();
  machine.hops[1].efficiency = 0.5;
  machine.hops[0].ring_rates = {{4, 80e9}, {16, 30e9}};
  machine.hops[1].ring_rates = {{16, 12e9, 1}};
  machine.hops[0].overhead = 7e-6;
  machine.hops[0].fan_efficiency = 0.8;
  Levels levels(machine, {.rank_count = 16});
  expect_cost(levels.round(Pattern::ring(1, 4), 1e6), Hop::kHost, 6e-6, 1 / 80e9);
  expect_cost(levels.round(Pattern::ring(1, 2), 1e6), Hop::kHost, 6e-6, 1 / kWire);
  expect_cost(levels.round(Pattern::ring(4, 4), 1e6), Hop::kRack, 14e-6, 2 / kNic / 0.5);
  expect_cost(levels.round(Pattern::ring(1, 16), 1e6), Hop::kRack, 14e-6, 1 / 12e9 / 0.5);
  // Three messages of a rank on three wires.
  expect_cost(levels.round(Pattern::all(1, 4), 1e6), Hop::kHost, 20e-6, 1 / kWire / 0.8);
}

// Goal: a message pays for all others of its round: over the network for everybody's, within a
// host for those of this one. Method: rings through all and within hosts, and one pair alone.
TEST(Levels, CrowdsAreCounted) {
  Machine machine = four_by_two();
  machine.hops[0].crowding = 1e-6;
  machine.hops[1].crowding = 2e-6;
  Levels levels(machine, {.rank_count = 16});
  expect_cost(levels.round(Pattern::ring(1, 4), 1e6), Hop::kHost, 6e-6 + 3e-6, 1 / kWire);
  expect_cost(levels.round(Pattern::ring(4, 4), 1e6), Hop::kRack, 14e-6 + 15 * 2e-6, 2 / kNic);
  expect_cost(levels.round(Pattern::fan(4, 2, 1), 1e6), Hop::kRack, 14e-6, 1 / kNic);
}

// Goal: a rate for a ring's own stride goes before that for any. Method: one size, both.
TEST(Levels, RingRatesByStride) {
  Machine machine = four_by_two();
  machine.hops[1].ring_rates = {{2, 30e9}, {2, 20e9, 4}};
  Levels levels(machine, {.rank_count = 16});
  expect_cost(levels.round(Pattern::ring(4, 2), 1e6), Hop::kRack, 14e-6, 1 / 20e9);
  expect_cost(levels.round(Pattern::ring(8, 2), 1e6), Hop::kRack, 14e-6, 1 / 30e9);
}

// Goal: both directions of a link that has one rate for them share it.
TEST(Levels, HalfDuplexIsShared) {
  Machine machine = four_by_two();
  Levels both(machine, {.rank_count = 2});
  for (Machine::Link& link : machine.links) link.half_duplex = true;
  Levels shared(machine, {.rank_count = 2});
  EXPECT_DOUBLE_EQ(both.round(Pattern::ring(1, 2), 1).seconds_per_byte, 1 / kWire);
  EXPECT_DOUBLE_EQ(shared.round(Pattern::ring(1, 2), 1).seconds_per_byte, 2 / kWire);
}

}  // namespace
}  // namespace farandole
