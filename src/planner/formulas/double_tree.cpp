// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "algorithms/double_tree.hpp"

#include <algorithm>
#include <bit>

#include "planner/formulas/formulas.hpp"

namespace farandole {
namespace {

// Up to this many ranks the rounds are walked; beyond, each phase counts at most one piece too
// many.
constexpr std::int64_t kWalkedRanksMax = 1024;

std::int64_t lg(std::int64_t number) {
  return std::bit_width(static_cast<std::uint64_t>(number)) - 1;
}

struct Edge {
  std::int64_t parent, child;  // positions counted from the root, which is 0
  std::int64_t up, down;       // rounds after which the first piece uses this edge, each way
};

/// The edges of both trees, as algorithms/double_tree.hpp describes them.
std::vector<Edge> edges_of(std::int64_t rank_count) {
  const std::int64_t nodes = rank_count - 1, height = lg(nodes);
  std::vector<Edge> edges;
  for (const int tree : {0, 1}) {
    const auto rank_of = [&](std::int64_t node) { return tree == 0 ? node : node % nodes + 1; };
    for (std::int64_t node = 2; node <= nodes; node += 2) {
      const std::int64_t low = lg(node & -node), half = std::int64_t{1} << (low - 1);
      const auto add = [&](std::int64_t child) {
        edges.push_back({rank_of(node), rank_of(child), low - 1, height - lg(child & -child)});
      };
      add(node - half);
      if (node + half <= nodes) {
        add(node + half);
      } else if (node < nodes) {
        add(node + (std::int64_t{1} << lg(nodes - node)));
      }
    }
    edges.push_back({0, rank_of(std::int64_t{1} << height), height, 0});
  }
  return edges;
}

/// Counts the pieces that ports carry one after the other, along the longest chain of rounds: a
/// recurrence over the rounds, in which a message is as slow as the busier of its two ports.
class PortWalk {
 public:
  PortWalk(std::int64_t rank_count, std::int64_t pieces)
      : edges_(edges_of(rank_count)),
        pieces_(pieces),
        rounds_(pieces + lg(rank_count - 1)),
        clock_(static_cast<std::size_t>(rank_count)),
        sent_(clock_.size()),
        received_(clock_.size()) {}

  void pass(bool up) {
    for (std::int64_t round = 0; round < rounds_; ++round) step(up, round);
  }
  std::int64_t longest() const { return *std::max_element(clock_.begin(), clock_.end()); }

 private:
  static std::size_t at(std::int64_t rank) { return static_cast<std::size_t>(rank); }

  void step(bool up, std::int64_t round) {
    std::ranges::fill(sent_, 0);
    std::ranges::fill(received_, 0);
    const auto each = [&](auto visit) {
      for (const Edge& edge : edges_) {
        const std::int64_t piece = round - (up ? edge.up : edge.down);
        if (piece < 0 || piece >= pieces_) continue;
        visit(at(up ? edge.child : edge.parent), at(up ? edge.parent : edge.child));
      }
    };
    each([&](std::size_t from, std::size_t to) { ++sent_[from], ++received_[to]; });
    std::vector<std::int64_t> next = clock_;
    each([&](std::size_t from, std::size_t to) {
      const std::int64_t done =
          std::max(clock_[from], clock_[to]) + std::max(sent_[from], received_[to]);
      next[from] = std::max(next[from], done);
      next[to] = std::max(next[to], done);
    });
    clock_ = std::move(next);
  }

  const std::vector<Edge> edges_;
  const std::int64_t pieces_, rounds_;
  std::vector<std::int64_t> clock_, sent_, received_;
};

std::int64_t pieces_carried(std::int64_t rank_count, std::int64_t pieces, bool up, bool down) {
  const std::int64_t rounds = pieces + lg(rank_count - 1);
  if (rank_count > kWalkedRanksMax) return 2 * rounds * ((up ? 1 : 0) + (down ? 1 : 0));
  PortWalk walk(rank_count, pieces);
  if (up) walk.pass(true);
  if (down) walk.pass(false);
  return walk.longest();
}

}  // namespace

// Every round moves a piece in each tree, so a port carries two: [Sanders09].
void double_tree_rounds(CostSheet& sheet, bool up, bool down) {
  const std::int64_t p = sheet.ranks(), asked = sheet.parameters().chunks;
  const std::int64_t pieces = asked > 0 ? asked : kDefaultTreePieces;
  const double each = sheet.bytes() / (2 * static_cast<double>(pieces));
  const Pattern neighbours = Pattern::cycle(1, p);
  RoundCost cost = sheet.levels().round(neighbours, 2 * each);
  const HopCost& hop = sheet.levels().extras(cost.hop);  // a rank sends two pieces at once
  cost.alpha += hop.overhead;
  cost.seconds_per_byte /= hop.fan_efficiency;
  const auto carried = static_cast<double>(pieces_carried(p, pieces, up, down));
  const auto one_way = static_cast<double>(pieces + lg(p - 1));
  const double rounds = one_way * ((up ? 1 : 0) + (down ? 1 : 0));
  // Messages per round on average; the pattern of neighbours has counted p.
  const double messages = static_cast<double>(2 * (p - 1) * pieces) / one_way;
  cost.alpha += hop.crowding * (messages - static_cast<double>(p));
  sheet.first_message(neighbours, cost, each);
  sheet.moves(cost, rounds, carried * each, up ? 2 * each * static_cast<double>(pieces) : 0);
}

}  // namespace farandole
