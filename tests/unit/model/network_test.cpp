// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "model/network.hpp"

#include <gtest/gtest.h>

#include <set>

namespace farandole {
namespace {

// Two pairs of GPUs, each pair with a fast bridge and a CPU; a NIC at CPU 0.
Machine two_sockets() {
  using Kind = Machine::Kind;
  Machine machine;
  machine.name = "two sockets";
  machine.nodes = {{"cpu0", Kind::kCpu}, {"cpu1", Kind::kCpu}, {"gpu0", Kind::kGpu},
                   {"gpu1", Kind::kGpu}, {"gpu2", Kind::kGpu}, {"gpu3", Kind::kGpu},
                   {"nic", Kind::kNic}};
  machine.links = {{0, 2, 16e9, false, 1e-6}, {0, 3, 16e9, false, 1e-6}, {1, 4, 16e9, false, 1e-6},
                   {1, 5, 16e9, false, 1e-6}, {0, 1, 20e9, true, 2e-6},  {2, 3, 25e9, false, 5e-7},
                   {2, 3, 50e9, false, 5e-7}, {0, 6, 16e9, false, 1e-6}};
  machine.devices = {2, 3, 4, 5};
  machine.nic_of = {6, 6, 6, 6};
  machine.hosts = 8;
  machine.nic_bytes_per_second = 12e9;
  machine.nic_latency = 3e-6;
  machine.hosts_per_rack = 2;
  machine.uplinks = 4;
  machine.uplink_bytes_per_second = 10e9;
  machine.uplink_latency = 4e-6;
  return machine;
}

Network network_of(Routing routing, std::uint64_t seed = 0) {
  auto network = Network::create(two_sockets(), 32, routing, seed);
  EXPECT_TRUE(network) << network.error().message;
  return *std::move(network);
}

std::vector<std::string> names(const Network& network, std::int32_t from, std::int32_t to) {
  std::vector<std::int32_t> links;
  network.route(from, to, links);
  std::vector<std::string> names;
  for (const std::int32_t link : links) names.push_back(network.link_name(link));
  return names;
}

using Names = std::vector<std::string>;

TEST(Network, RoutesWithinAHostByFewestLinksThenTheHighestRate) {
  const Network network = network_of(Routing::kIdeal);
  EXPECT_EQ(names(network, 0, 1), Names({"host 0: gpu0 -> gpu1"}));
  std::vector<std::int32_t> links;
  network.route(0, 1, links);
  EXPECT_EQ(network.capacities()[static_cast<std::size_t>(links[0])], 50e9);
  EXPECT_EQ(names(network, 6, 5),
            Names({"host 1: gpu2 -> cpu1", "host 1: cpu0 - cpu1", "host 1: cpu0 -> gpu1"}));
  // Half duplex: the same link the other way.
  EXPECT_EQ(names(network, 5, 6)[1], "host 1: cpu0 - cpu1");
  EXPECT_TRUE(names(network, 3, 3).empty());
}

TEST(Network, RoutesBetweenHostsThroughNicsAndSpines) {
  const Network network = network_of(Routing::kIdeal);
  std::vector<std::int32_t> links;
  const Network::Route near = network.route(0, 4, links);
  EXPECT_EQ(near.hop, Hop::kRack);
  EXPECT_DOUBLE_EQ(near.latency, 1e-6 + 1e-6 + 3e-6 + 3e-6 + 1e-6 + 1e-6);
  EXPECT_EQ(names(network, 0, 4),
            Names({"host 0: gpu0 -> cpu0", "host 0: cpu0 -> nic", "host 0: nic -> switch",
                   "host 1: switch -> nic", "host 1: nic -> cpu0", "host 1: cpu0 -> gpu0"}));
  const Names far = names(network, 0, 8);
  EXPECT_EQ(far[3], "rack 0 -> spines");
  EXPECT_EQ(far[4], "spines -> rack 1");
  links.clear();
  const Network::Route across = network.route(0, 8, links);
  EXPECT_EQ(across.hop, Hop::kFabric);
  EXPECT_DOUBLE_EQ(across.latency, near.latency + 2 * 4e-6);
  EXPECT_EQ(network.capacities()[static_cast<std::size_t>(links[3])], 40e9);
  EXPECT_LE(links.size(), network.route_links_max());
}

TEST(Network, RoutingChoosesSpines) {
  const Network by_destination = network_of(Routing::kDestination);
  for (std::int32_t host = 2; host < 8; ++host) {
    EXPECT_EQ(names(by_destination, 0, 4 * host)[3], "rack 0 -> spine " + std::to_string(host % 4));
  }
  std::set<Names> seeds;
  std::set<std::string> spines;
  for (std::uint64_t seed = 0; seed < 16; ++seed) {
    const Network hashed = network_of(Routing::kStaticHash, seed);
    EXPECT_EQ(names(hashed, 0, 8)[3], names(hashed, 1, 9)[3]);  // the same ports
    seeds.insert(names(hashed, 0, 8));
    for (std::int32_t host = 2; host < 8; ++host) spines.insert(names(hashed, 0, 4 * host)[3]);
  }
  EXPECT_GT(seeds.size(), 1U);
  EXPECT_EQ(spines.size(), 4U);
}

TEST(Network, ErrorsNameTheArgument) {
  const auto many = Network::create(two_sockets(), 33);
  ASSERT_FALSE(many);
  EXPECT_EQ(many.error().kind, ErrorKind::kInvalidArgument);
  EXPECT_EQ(many.error().message,
            "argument 'rank_count' is 33, machine \"two sockets\" has 32 devices.");
  const auto outside = Network::create(two_sockets(), std::vector<Place>{{0, 0}, {8, 1}});
  ASSERT_FALSE(outside);
  EXPECT_EQ(outside.error().message,
            "argument 'placement' puts rank 1 on device 1 of host 8, allowed are devices 0 to 3 of "
            "hosts 0 to 7.");
  EXPECT_FALSE(Network::create(two_sockets(), std::vector<Place>{}));
}

}  // namespace
}  // namespace farandole
