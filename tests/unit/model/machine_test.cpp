// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "model/machine.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>

namespace farandole {
namespace {

using Kind = Machine::Kind;

// Two hosts of two GPUs behind a switch, one NIC, racks of one host.
Machine good() {
  Machine machine;
  machine.name = "two";
  machine.nodes = {
      {"gpu0", Kind::kGpu}, {"gpu1", Kind::kGpu}, {"switch", Kind::kSwitch}, {"nic", Kind::kNic}};
  machine.links = {{0, 2, 1e10, false, 0}, {1, 2, 1e10, false, 0}, {2, 3, 1e10, true, 1e-6}};
  machine.devices = {0, 1};
  machine.nic_of = {3, 3};
  machine.hosts = 2;
  machine.nic_bytes_per_second = 1e9;
  machine.hosts_per_rack = 1;
  machine.uplinks = 1;
  machine.uplink_bytes_per_second = 1e9;
  machine.hops[0].ring_rates = {{2, 1e9}, {4, 2e9}};
  return machine;
}

struct Damage {
  const char* message;  // how the error begins
  std::function<void(Machine&)> apply;
};

// Goal: a machine that makes sense is accepted. Method: the one that all damage below starts from.
TEST(MachineCheck, AcceptsWhatMakesSense) {
  EXPECT_TRUE(check(good()));
}

// Goal: rings of one size may differ by their stride. Method: add strides to one that has none.
TEST(MachineCheck, RingsOfOneSizeMayDifferByStride) {
  Machine machine = good();
  machine.hops[0].ring_rates = {{4, 2e9}, {4, 1e9, 1}, {4, 3e9, 2}, {8, 1e9}};
  EXPECT_TRUE(check(machine));
}

// Goal: one host needs neither NIC nor network. Method: take both away.
TEST(MachineCheck, OneHostNeedsNoNetwork) {
  Machine machine = good();
  machine.hosts = 1;
  machine.nic_of.clear();
  machine.nic_bytes_per_second = 0;
  machine.uplinks = 0;
  machine.uplink_bytes_per_second = 0;
  EXPECT_TRUE(check(machine));
}

// Goal: every field that can be wrong is found, and the error names it, what it is and what is
// allowed. Method: damage one field of a good machine at a time.
TEST(MachineCheck, NamesTheFieldThatIsWrong) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinite = std::numeric_limits<double>::infinity();
  const Damage damages[] = {
      {"nodes[1].name is 'gpu0'", [](Machine& m) { m.nodes[1].name = "gpu0"; }},
      {"nodes[0].name is ''", [](Machine& m) { m.nodes[0].name = ""; }},
      {"links[1].from is 4, allowed is a node from 0 to 3",
       [](Machine& m) { m.links[1].from = 4; }},
      {"links[1].to is -1", [](Machine& m) { m.links[1].to = -1; }},
      {"links[1].to is 1", [](Machine& m) { m.links[1].to = 1; }},
      {"links[0].bytes_per_second is 0", [](Machine& m) { m.links[0].bytes_per_second = 0; }},
      {"links[0].bytes_per_second is nan",
       [nan](Machine& m) { m.links[0].bytes_per_second = nan; }},
      {"links[2].latency is -1", [](Machine& m) { m.links[2].latency = -1; }},
      {"devices is empty", [](Machine& m) { m.devices = {}; }},
      {"devices[1] is 9", [](Machine& m) { m.devices[1] = 9; }},
      {"devices[1] is switch", [](Machine& m) { m.devices[1] = 2; }},
      {"devices[1] is gpu0", [](Machine& m) { m.devices[1] = 0; }},
      {"devices[1] is gpu1, allowed is a device that links join with gpu0",
       [](Machine& m) { m.links.erase(m.links.begin() + 1); }},
      {"nic_of is 1 NICs", [](Machine& m) { m.nic_of = {3}; }},
      {"nic_of is 0 NICs", [](Machine& m) { m.nic_of = {}; }},
      {"nic_of[0] is 7", [](Machine& m) { m.nic_of[0] = 7; }},
      {"nic_of[1] is gpu1", [](Machine& m) { m.nic_of[1] = 1; }},
      {"nic_of[0] is nic, allowed is a NIC that links join with gpu0",
       [](Machine& m) { m.links.pop_back(); }},
      {"hosts is 0", [](Machine& m) { m.hosts = 0; }},
      {"nic_bytes_per_second is 0", [](Machine& m) { m.nic_bytes_per_second = 0; }},
      {"nic_latency is inf", [infinite](Machine& m) { m.nic_latency = infinite; }},
      {"hosts_per_rack is -1", [](Machine& m) { m.hosts_per_rack = -1; }},
      {"uplinks is 0", [](Machine& m) { m.uplinks = 0; }},
      {"uplink_bytes_per_second is 0", [](Machine& m) { m.uplink_bytes_per_second = 0; }},
      {"uplink_latency is -1", [](Machine& m) { m.uplink_latency = -1; }},
      {"hops.host.alpha is -1", [](Machine& m) { m.hops[0].alpha = -1; }},
      {"hops.rack.call is -1", [](Machine& m) { m.hops[1].call = -1; }},
      {"hops.rack.overhead is -1", [](Machine& m) { m.hops[1].overhead = -1; }},
      {"hops.rack.crowding is -1", [](Machine& m) { m.hops[1].crowding = -1; }},
      {"hops.fabric.fill_chunks is -1", [](Machine& m) { m.hops[2].fill_chunks = -1; }},
      {"hops.host.efficiency is 1.5", [](Machine& m) { m.hops[0].efficiency = 1.5; }},
      {"hops.host.efficiency is 0", [](Machine& m) { m.hops[0].efficiency = 0; }},
      {"hops.host.fan_efficiency is 0", [](Machine& m) { m.hops[0].fan_efficiency = 0; }},
      {"hops.host.ring_rates[0].ring_size is 1",
       [](Machine& m) { m.hops[0].ring_rates[0].ring_size = 1; }},
      {"hops.host.ring_rates[1].ring_size is 2",
       [](Machine& m) { m.hops[0].ring_rates[1].ring_size = 2; }},
      {"hops.host.ring_rates[2].stride is -1",
       [](Machine& m) { m.hops[0].ring_rates.push_back({8, 1e9, -1}); }},
      {"hops.host.ring_rates[2].ring_size is 4, allowed is a whole number of at least 5",
       [](Machine& m) { m.hops[0].ring_rates.push_back({4, 1e9, 0}); }},
      {"hops.host.ring_rates[2].ring_size is 2, allowed is a whole number of at least 4",
       [](Machine& m) { m.hops[0].ring_rates.push_back({2, 1e9, 9}); }},
      {"hops.host.ring_rates[1].bytes_per_second is 0",
       [](Machine& m) { m.hops[0].ring_rates[1].bytes_per_second = 0; }},
      {"reduce_seconds_per_byte is -1", [](Machine& m) { m.reduce_seconds_per_byte = -1; }},
      {"copy_seconds_per_byte is -1", [](Machine& m) { m.copy_seconds_per_byte = -1; }},
  };
  for (const Damage& damage : damages) {
    Machine machine = good();
    damage.apply(machine);
    const Result<void> checked = check(machine);
    ASSERT_FALSE(checked) << damage.message;
    EXPECT_EQ(checked.error().kind, ErrorKind::kInvalidArgument);
    EXPECT_EQ(checked.error().message.rfind(damage.message, 0), 0u)
        << checked.error().message << "\nshould begin with " << damage.message;
    EXPECT_NE(checked.error().message.find("allowed is"), std::string::npos);
  }
}

}  // namespace
}  // namespace farandole
