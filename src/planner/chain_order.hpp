// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace farandole {

/// Directed links, by number, that a message from one rank to another uses.
using HopLinks = std::function<std::vector<std::int32_t>(std::int32_t from, std::int32_t to)>;

/// The wires of a machine that form a tree: devices on PCIe switches, switches on sockets, sockets
/// joined, hosts joined by one network. A host hangs from the network by its NIC, so its tree is
/// drawn from the NIC on: the NIC's switch first, then that switch's socket, then the other one.
struct LinkTree {
  std::vector<std::int32_t> parent;   // [node]: the node it is wired to; -1 at the top
  std::vector<std::int32_t> node_of;  // [rank]

  /// Link 2 node leads from a node to its parent, 2 node + 1 back.
  std::vector<std::int32_t> links(std::int32_t from, std::int32_t to) const;
};

/// An order of ranks for pipelined_chain.
struct ChainOrder {
  std::vector<std::int32_t> order;  // [rank_count], the root first
  std::int64_t contention = 0;      // most hops of the chain on one directed link
};

/// An order in which the chain uses no directed link twice: it visits the tree as a walk from the
/// root's node does that leaves no branch before all of it is seen, so it enters and leaves each
/// switch once. Always exists. Source: [Xin20] §4.3.
ChainOrder chain_order(const LinkTree& tree, std::int32_t root);

/// The same for wires of any shape: searches for an order without a shared link, the nearest rank
/// first, and goes back where it gets stuck, up to a bounded number of steps. Finds none: the
/// order that always takes the nearest rank, and how much its hops share.
ChainOrder chain_order(std::int32_t rank_count, const HopLinks& links, std::int32_t root);

/// Most hops of the chain through `order` on one directed link; 0 where no link is used.
std::int64_t contention_of(const std::vector<std::int32_t>& order, const HopLinks& links);

}  // namespace farandole
