// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace farandole {

/// Directed links, by number, that a message from one rank to another uses.
using HopLinks = std::function<std::vector<std::int32_t>(std::int32_t from, std::int32_t to)>;

/// A machine whose wires form a tree: devices on PCIe switches, switches on sockets, sockets joined
/// with each other, hosts joined by one network. A host is connected to the network by its NIC, so
/// the NIC is the root of the host's subtree: below it is the NIC's switch, then that switch's
/// socket, then the other socket.
struct LinkTree {
  std::vector<std::int32_t> parent;   // [node]: the node it is wired to; -1 at the top
  std::vector<std::int32_t> node_of;  // [rank]

  /// The links on the way; link 2 node leads from a node to its parent, 2 node + 1 back.
  std::vector<std::int32_t> links(std::int32_t from, std::int32_t to) const;
};

/// An order of ranks for pipelined_chain.
struct ChainOrder {
  std::vector<std::int32_t> order;  // [rank_count], the root first
  std::int64_t contention = 0;      // most hops of the chain on one directed link
};

/// An order in which the chain uses no directed link twice: it visits the tree depth first from the
/// root's node, so it enters and leaves each switch once. Always exists.
///
/// Source    [Xin20] §4.3
ChainOrder chain_order(const LinkTree& tree, std::int32_t root);

/// The same for wires of any shape: searches for an order without a shared link, the nearest rank
/// first, with backtracking and a bounded number of steps. If it finds none, returns the order that
/// always takes the nearest rank, and its contention.
ChainOrder chain_order(std::int32_t rank_count, const HopLinks& links, std::int32_t root);

/// The largest number of the chain's hops on one directed link; 0 if it uses no link.
std::int64_t contention_of(const std::vector<std::int32_t>& order, const HopLinks& links);

}  // namespace farandole
