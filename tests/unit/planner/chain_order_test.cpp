// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "planner/chain_order.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "algorithms/registry.hpp"
#include "schedule/expand.hpp"

namespace farandole {
namespace {

// Hosts with two sockets each and a NIC on the first one; two PCIe switches per socket. `devices`
// per host, numbered so that neighbours sit on different sockets; ranks host by host, or dealt out
// to the hosts in turn.
struct Machine {
  int hosts, devices;
  bool in_turn = false;

  int ranks() const { return hosts * devices; }
  LinkTree tree() const {
    LinkTree tree;
    tree.parent = {-1};  // the network
    tree.node_of.resize(static_cast<std::size_t>(ranks()));
    const auto add = [&](std::int32_t parent) {
      tree.parent.push_back(parent);
      return static_cast<std::int32_t>(tree.parent.size() - 1);
    };
    for (int host = 0; host < hosts; ++host) {
      const std::int32_t nic = add(0), socket = add(nic), other_socket = add(socket);
      const std::int32_t switches[] = {add(socket), add(other_socket), add(socket),
                                       add(other_socket)};
      for (int device = 0; device < devices; ++device) {
        const int rank = in_turn ? device * hosts + host : host * devices + device;
        tree.node_of[static_cast<std::size_t>(rank)] = add(switches[device % 4]);
      }
    }
    return tree;
  }
};

std::string spec_of(const std::vector<std::int32_t>& order) {
  std::string text;
  for (const std::int32_t rank : order) {
    text += (text.empty() ? "" : "/") + std::to_string(rank);
  }
  return "pipelined_chain:chunks=3" + (order.empty() ? "" : ",order=" + text);
}

// Most senders on one directed link, from the messages that the schedule really sends.
std::int64_t load_of(const std::string& spec, const LinkTree& tree, std::int32_t root) {
  const auto ranks = static_cast<std::int64_t>(tree.node_of.size());
  const auto schedule = build_schedule(Collective::kBroadcast, spec, ranks, root);
  EXPECT_TRUE(schedule) << schedule.error().message;
  const Expanded steps = expand(*schedule);
  const auto rank_at = [&](std::int64_t position) {
    return schedule->order.empty() ? static_cast<std::int32_t>(position)
                                   : schedule->order[static_cast<std::size_t>(position)];
  };
  std::map<std::int32_t, std::set<std::pair<std::int32_t, std::int32_t>>> hops;
  for (std::int64_t position = 0; position < ranks; ++position) {
    for (const ConcreteRound& round : steps.ranks[static_cast<std::size_t>(position)]) {
      for (const ConcreteAction& action : round) {
        if (action.kind != Action::Kind::kSend) continue;
        const std::int32_t from = rank_at(position), to = rank_at(action.peer);
        for (const std::int32_t link : tree.links(from, to)) hops[link].emplace(from, to);
      }
    }
  }
  std::size_t most = 0;
  for (const auto& [link, users] : hops) most = std::max(most, users.size());
  return static_cast<std::int64_t>(most);
}

const Machine kMachines[] = {{1, 4}, {1, 8}, {1, 16}, {2, 4}, {4, 8}, {4, 8, true}, {3, 16, true}};

// Goal: the chain in the order found shares no link, from any root; in the order of the ranks it
// does. Method: count the senders on every directed link of two-socket machines.
TEST(ChainOrder, SharesNoLinkWhereTheOrderOfRanksDoes) {
  for (const Machine& machine : kMachines) {
    const LinkTree tree = machine.tree();
    EXPECT_GE(load_of(spec_of({}), tree, 0), 2) << machine.hosts << " x " << machine.devices;
    for (std::int32_t root = 0; root < machine.ranks(); ++root) {
      const ChainOrder found = chain_order(tree, root);
      EXPECT_EQ(found.contention, 1);
      EXPECT_EQ(found.order.front(), root);
      EXPECT_EQ(load_of(spec_of(found.order), tree, root), 1) << root;
    }
  }
}

// Goal: the search knows nothing of trees and finds such an order all the same.
TEST(ChainOrder, IsFoundBySearchFromLinksAlone) {
  for (const Machine& machine : kMachines) {
    const LinkTree tree = machine.tree();
    const HopLinks links = [&](std::int32_t a, std::int32_t b) { return tree.links(a, b); };
    const ChainOrder found = chain_order(machine.ranks(), links, 1);
    EXPECT_EQ(found.contention, 1) << machine.hosts << " x " << machine.devices;
    EXPECT_EQ(load_of(spec_of(found.order), tree, 1), 1);
  }
}

// Goal: the search goes back where the nearest rank leads nowhere.
// Method: from 0, rank 1 is nearest, but who has come there cannot leave.
TEST(ChainOrder, GoesBackWhereTheNearestRankIsADeadEnd) {
  const HopLinks links = [](std::int32_t from, std::int32_t to) -> std::vector<std::int32_t> {
    if (from == 0 && to == 1) return {7};
    if (from == 1) return {7, 8};
    return {10 * from + to, 10 * from};
  };
  const ChainOrder found = chain_order(3, links, 0);
  EXPECT_EQ(found.order, (std::vector<std::int32_t>{0, 2, 1}));
  EXPECT_EQ(found.contention, 1);
}

// Goal: where every order shares a link, the answer says how much. Method: one bus for all.
TEST(ChainOrder, ReportsWhatCannotBeAvoided) {
  const HopLinks bus = [](std::int32_t, std::int32_t) { return std::vector<std::int32_t>{0}; };
  const ChainOrder found = chain_order(5, bus, 3);
  EXPECT_EQ(found.contention, 4);
  EXPECT_EQ(found.order, (std::vector<std::int32_t>{3, 0, 1, 2, 4}));
  EXPECT_EQ(chain_order(1, bus, 0).contention, 0);
}

}  // namespace
}  // namespace farandole
