// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "planner/chain_order.hpp"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace farandole {
namespace {

constexpr std::int64_t kStepsMax = 20'000;  // of the search, each looks at all ranks left
constexpr std::size_t kBranchesMax = 8;     // nearest ranks that a step may try

std::size_t index(std::int32_t number) {
  return static_cast<std::size_t>(number);
}

// Depth-first search for a chain whose hops share no link.
class ChainSearch {
 public:
  ChainSearch(std::int32_t rank_count, const HopLinks& links, std::int32_t root)
      : rank_count_(rank_count), links_(links), visited_(index(rank_count)) {
    enter({root, {}});
  }

  // The order found, or one that is too short.
  std::vector<std::int32_t> run() {
    for (std::int64_t steps = 0; steps < kStepsMax && !complete(); ++steps) {
      while (!path_.empty() && path_.back().branches.empty()) leave();
      if (path_.empty()) break;
      Hop next = std::move(path_.back().branches.back());
      path_.back().branches.pop_back();
      enter(std::move(next));
    }
    std::vector<std::int32_t> order;
    for (const Stop& stop : path_) order.push_back(stop.hop.rank);
    return order;
  }

 private:
  struct Hop {
    std::int32_t rank;
    std::vector<std::int32_t> links;
  };
  struct Stop {
    Hop hop;                    // that led here
    std::vector<Hop> branches;  // not yet tried, the nearest last
  };

  bool complete() const { return path_.size() == index(rank_count_); }

  void enter(Hop hop) {
    visited_[index(hop.rank)] = true;
    used_.insert(hop.links.begin(), hop.links.end());
    path_.push_back({std::move(hop), {}});
    path_.back().branches = branches_from(path_.back().hop.rank);
  }

  void leave() {
    const Hop& hop = path_.back().hop;
    visited_[index(hop.rank)] = false;
    for (const std::int32_t link : hop.links) used_.erase(link);
    path_.pop_back();
  }

  std::vector<Hop> branches_from(std::int32_t rank) const {
    std::vector<Hop> hops;
    for (std::int32_t other = 0; other < rank_count_; ++other) {
      if (visited_[index(other)]) continue;
      Hop hop{other, links_(rank, other)};
      const bool free = std::none_of(hop.links.begin(), hop.links.end(),
                                     [&](std::int32_t link) { return used_.contains(link); });
      if (free) hops.push_back(std::move(hop));
    }
    std::stable_sort(hops.begin(), hops.end(),
                     [](const Hop& a, const Hop& b) { return a.links.size() < b.links.size(); });
    if (hops.size() > kBranchesMax) hops.erase(hops.begin() + kBranchesMax, hops.end());
    std::reverse(hops.begin(), hops.end());
    return hops;
  }

  const std::int32_t rank_count_;
  const HopLinks& links_;
  std::vector<bool> visited_;
  std::unordered_set<std::int32_t> used_;
  std::vector<Stop> path_;
};

std::vector<std::int32_t> nearest_first(std::int32_t rank_count, const HopLinks& links,
                                        std::int32_t root) {
  std::vector<std::int32_t> order = {root}, left;
  for (std::int32_t rank = 0; rank < rank_count; ++rank) {
    if (rank != root) left.push_back(rank);
  }
  while (!left.empty()) {
    const auto distance = [&](std::int32_t rank) { return links(order.back(), rank).size(); };
    const auto nearest =
        std::min_element(left.begin(), left.end(),
                         [&](std::int32_t a, std::int32_t b) { return distance(a) < distance(b); });
    order.push_back(*nearest);
    left.erase(nearest);
  }
  return order;
}

}  // namespace

std::vector<std::int32_t> LinkTree::links(std::int32_t from, std::int32_t to) const {
  const auto depth = [&](std::int32_t node) {
    int levels = 0;
    for (; parent[index(node)] >= 0; node = parent[index(node)]) ++levels;
    return levels;
  };
  std::int32_t a = node_of[index(from)], b = node_of[index(to)];
  int above_a = depth(a), above_b = depth(b);
  std::vector<std::int32_t> path;
  while (a != b) {
    const bool climbs = above_a >= above_b;
    std::int32_t& lower = climbs ? a : b;
    path.push_back(2 * lower + (climbs ? 0 : 1));
    lower = parent[index(lower)];
    --(climbs ? above_a : above_b);
  }
  return path;
}

ChainOrder chain_order(const LinkTree& tree, std::int32_t root) {
  const std::size_t node_count = tree.parent.size();
  std::vector<std::vector<std::int32_t>> neighbours(node_count), ranks(node_count);
  for (std::size_t node = 0; node < node_count; ++node) {
    const std::int32_t above = tree.parent[node];
    if (above >= 0) neighbours[index(above)].push_back(static_cast<std::int32_t>(node));
  }
  for (std::size_t node = 0; node < node_count; ++node) {
    // The parent comes last, so that a walk visits the children before it climbs.
    if (tree.parent[node] >= 0) neighbours[node].push_back(tree.parent[node]);
  }
  ChainOrder result{{root}, 0};
  for (std::size_t rank = 0; rank < tree.node_of.size(); ++rank) {
    const auto number = static_cast<std::int32_t>(rank);
    if (number != root) ranks[index(tree.node_of[rank])].push_back(number);
  }
  std::vector<std::pair<std::int32_t, std::int32_t>> open = {{tree.node_of[index(root)], -1}};
  while (!open.empty()) {
    const auto [node, from] = open.back();
    open.pop_back();
    const auto& here = ranks[index(node)];
    result.order.insert(result.order.end(), here.begin(), here.end());
    const auto& next = neighbours[index(node)];
    for (auto other = next.rbegin(); other != next.rend(); ++other) {
      if (*other != from) open.emplace_back(*other, node);
    }
  }
  result.contention =
      contention_of(result.order, [&](std::int32_t a, std::int32_t b) { return tree.links(a, b); });
  return result;
}

ChainOrder chain_order(std::int32_t rank_count, const HopLinks& links, std::int32_t root) {
  std::vector<std::int32_t> order = ChainSearch(rank_count, links, root).run();
  if (order.size() < index(rank_count)) order = nearest_first(rank_count, links, root);
  const std::int64_t contention = contention_of(order, links);
  return {std::move(order), contention};
}

std::int64_t contention_of(const std::vector<std::int32_t>& order, const HopLinks& links) {
  std::unordered_map<std::int32_t, std::int64_t> loads;
  std::int64_t most = 0;
  for (std::size_t i = 1; i < order.size(); ++i) {
    for (const std::int32_t link : links(order[i - 1], order[i])) {
      most = std::max(most, ++loads[link]);
    }
  }
  return most;
}

}  // namespace farandole
