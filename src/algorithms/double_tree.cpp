// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "algorithms/double_tree.hpp"

#include <bit>

namespace farandole {
namespace {

int lg(std::int64_t power_of_two) {
  return std::countr_zero(static_cast<std::uint64_t>(power_of_two));
}

std::int64_t power_of_two_below(std::int64_t number) {
  return static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(number)));
}

std::int64_t lowest_bit(std::int64_t number) {
  return number & -number;
}

// One end of a class of edges: nodes first, first + step, ... up to last; and the offset of the
// other end.
struct Nodes {
  std::int64_t first, step, last;
  std::int64_t to_other;
};

}  // namespace

// One of the two trees, as seen from this rank in one round.
struct DoubleTree::Tree {
  int index;
  std::int64_t nodes, root, pieces;
  RoundBuilder round;
  Expr clock;

  std::int64_t rank_count() const { return nodes + 1; }
  Expr from_root() const { return (Expr::rank() - root) % rank_count(); }
  // Meaningless at the root, which every guard below leaves out.
  Expr node() const { return index == 0 ? from_root() : (from_root() - 2) % nodes + 1; }
  Expr rank_of(const Expr& node) const {
    return ((index == 0 ? node : node % nodes + 1) + root) % rank_count();
  }
  std::int64_t top() const { return power_of_two_below(nodes); }
  Expr top_rank() const { return rank_of(top()); }
  Expr other(const Nodes& these) const { return rank_of(node() + these.to_other); }
  /// The chunk that is now at a place which a piece reaches `delay` rounds after its start.
  Expr chunk(int delay) const { return clock - delay + index * pieces; }

  /// Limits the following actions to these nodes, on their lane.
  RoundBuilder& among(const Nodes& these, bool right, int delay) {
    at_clock(right, delay).when(from_root(), 1, rank_count());
    round.when(node(), these.first, these.last + 1);
    if (these.first == these.last) return round;
    const std::int64_t rest = these.first % these.step;
    return round.when(node() % these.step, rest, rest + 1);
  }
  RoundBuilder& at_root() { return at_clock(false, root_delay).when(from_root(), 0, 1); }
  RoundBuilder& at_top() { return among({top(), 1, top(), 0}, false, root_delay); }
  RoundBuilder& at_clock(bool right, int delay) {
    return round.always().lane(2 * index + (right ? 1 : 0)).when(clock - delay, 0, pieces);
  }
  int root_delay = 0;  // of the edge between the root and the top

  // Calls visit(right, children, parents) for each class of edges below parents with lowest bit h:
  // left children, right children, and the one right child that lies elsewhere at the end of the
  // tree.
  template <class Visit>
  void for_each_edge(std::int64_t h, Visit visit) const {
    const std::int64_t half = h / 2, step = 2 * h;
    visit(false, Nodes{half, step, nodes - half, half}, Nodes{h, step, nodes, -half});
    if (h + half <= nodes) {
      visit(true, Nodes{h + half, step, nodes, -half}, Nodes{h, step, nodes - half, half});
    }
    const std::int64_t last = (nodes - h) / step * step + h;  // the only parent of such a child
    if (last + half <= nodes || last == nodes) return;
    const std::int64_t moved = power_of_two_below(nodes - last);
    visit(true, Nodes{last + moved, 1, last + moved, -moved}, Nodes{last, 1, last, moved});
  }
};

// All ranks follow one clock, so that both ends of an edge name a piece in the same round. Going
// up, a parent with lowest bit h adds up piece j in round j + lg h - 1 and sends it later.
void DoubleTree::reduce(ScheduleBuilder& b) const {
  const int height = lg(power_of_two_below(nodes_));
  b.loop(pieces_ + height, [&](const Expr& clock) {
    const RoundBuilder round = b.round();
    for (const int index : {0, 1}) {
      Tree tree{index, nodes_, root_, pieces_, round, clock, height};
      const auto sent = [&](std::int64_t child, int delay) {
        return lowest_bit(child) == 1 ? in(tree.chunk(delay)) : out(tree.chunk(delay));
      };
      for (std::int64_t h = 2; h <= nodes_; h *= 2) {
        const int delay = lg(h) - 1;
        const Span sum = out(tree.chunk(delay)), own = in(tree.chunk(delay));
        tree.for_each_edge(h, [&](bool right, const Nodes& children, const Nodes&) {
          const Expr to = tree.other(children);
          tree.among(children, right, delay).send(sent(children.first, delay), to);
        });
        tree.for_each_edge(h, [&](bool right, const Nodes&, const Nodes& parents) {
          RoundBuilder& receivers = tree.among(parents, right, delay);
          if (right) receivers.then();  // one order of operands, whichever child is first
          receivers.receive_reduce(sum, right ? sum : own, tree.other(parents));
        });
      }
      tree.at_top().send(sent(tree.top(), height), root_);
      const Expr total = tree.chunk(height);
      tree.at_root().receive_reduce(out(total), in(total), tree.top_rank());
    }
  });
}

// Going down, a child with lowest bit h receives piece j in round j + lg(top / h).
void DoubleTree::broadcast(ScheduleBuilder& b, Buffer at_root) const {
  const int height = lg(power_of_two_below(nodes_));
  b.loop(pieces_ + height, [&](const Expr& clock) {
    const RoundBuilder round = b.round();
    for (const int index : {0, 1}) {
      Tree tree{index, nodes_, root_, pieces_, round, clock};
      const Span piece = out(tree.chunk(0)), given = in(tree.chunk(0));
      tree.at_root().send(at_root == Buffer::kIn ? given : piece, tree.top_rank());
      if (at_root == Buffer::kIn) tree.round.then().copy(piece, given);
      tree.at_top().receive(piece, root_);
      for (std::int64_t h = 2; h <= nodes_; h *= 2) {
        tree.for_each_edge(h, [&](bool right, const Nodes& children, const Nodes& parents) {
          const int delay = height - lg(lowest_bit(children.first));
          const Span passed = out(tree.chunk(delay));
          tree.among(children, right, delay).receive(passed, tree.other(children));
          tree.among(parents, right, delay).send(passed, tree.other(parents));
        });
      }
    }
  });
}

}  // namespace farandole
