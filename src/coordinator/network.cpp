// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "coordinator/network.hpp"

#include <algorithm>
#include <utility>

namespace farandole::coordinator {
namespace {

// Ranks in the subtree of `child` in a binomial tree, `child` included.
std::int32_t subtree_size(std::int32_t child, std::int32_t rank_count) {
  return std::min(child & -child, rank_count - child);
}

Result<void> send_down(const Tree& tree, std::int32_t rank_count, Network& network,
                       std::string_view message) {
  std::vector<std::int32_t> order = tree.children;
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return subtree_size(a, rank_count) > subtree_size(b, rank_count);
  });
  for (const std::int32_t child : order) {
    if (Result<void> sent = network.send(child, message); !sent) return sent;
  }
  return {};
}

// The report of this rank and all below it.
Result<Report> gather(Controller& controller, const Tree& tree, Network& network) {
  Report all = controller.report();
  for (const std::int32_t child : tree.children) {
    Result<std::string> message = network.receive(child);
    if (!message) return std::move(message).error();
    Result<Report> report = decode_report(*message);
    if (!report) return report;
    merge(all, *std::move(report));
  }
  return all;
}

Result<void> talk(Controller& controller, Network& network, Clock::time_point now) {
  const Tree tree = Tree::at(controller.rank(), controller.rank_count());
  Result<Report> report = gather(controller, tree, network);
  if (!report) return std::move(report).error();
  if (!tree.parent) {
    const Decision decision = controller.decide(*std::move(report), now);
    if (!tree.children.empty()) {
      Result<void> sent = send_down(tree, controller.rank_count(), network, encode(decision));
      if (!sent) return sent;
    }
    controller.apply(decision);
    return {};
  }
  if (Result<void> sent = network.send(*tree.parent, encode(*report)); !sent) return sent;
  Result<std::string> message = network.receive(*tree.parent);
  if (!message) return std::move(message).error();
  Result<void> sent = send_down(tree, controller.rank_count(), network, *message);
  if (!sent) return sent;
  Result<Decision> decision = decode_decision(*message);
  if (!decision) return std::move(decision).error();
  controller.apply(*decision);
  return {};
}

}  // namespace

Tree Tree::at(std::int32_t rank, std::int32_t rank_count, bool flat) {
  Tree tree;
  if (flat) {
    if (rank != 0) {
      tree.parent = 0;
    } else {
      for (std::int32_t child = 1; child < rank_count; ++child) tree.children.push_back(child);
    }
    return tree;
  }
  const std::int64_t lowest_bit = rank & -rank;
  if (rank != 0) tree.parent = static_cast<std::int32_t>(rank - lowest_bit);
  for (std::int64_t step = 1; rank + step < rank_count && (rank == 0 || step < lowest_bit);
       step *= 2) {
    tree.children.push_back(static_cast<std::int32_t>(rank + step));
  }
  return tree;
}

Result<void> run_cycle(Controller& controller, Network& network, Clock::time_point now) {
  std::vector<std::uint64_t> words = controller.propose(now);
  if (Result<void> reduced = network.all_and(words); !reduced) return reduced;
  controller.conclude(words);
  return controller.talks() ? talk(controller, network, now) : Result<void>();
}

}  // namespace farandole::coordinator
