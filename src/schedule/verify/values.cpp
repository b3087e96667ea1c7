// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/verify/values.hpp"

#include <algorithm>
#include <utility>

namespace farandole {

std::size_t ValueTable::Hash::operator()(const Key& key) const {
  std::uint64_t x = (std::uint64_t{key.left} << 32 | key.right) ^
                    (static_cast<std::uint64_t>(key.shift) * 0x9e3779b97f4a7c15u);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  return static_cast<std::size_t>(x ^ (x >> 27));
}

ValueTable::ValueTable(const Symmetry& symmetry, std::int64_t rank_count)
    : symmetry_(symmetry), rank_count_(rank_count), trees_(1), sets_(1) {}  // 0 is undefined

Value ValueTable::leaf(Symmetry::Point place) {
  const auto orbit = static_cast<std::uint32_t>(place.orbit);
  const auto [known, is_new] =
      tree_of_.try_emplace({orbit, kLeaf, 0}, static_cast<std::uint32_t>(trees_.size()));
  if (is_new) {
    trees_.push_back({1, static_cast<std::uint32_t>(sets_.size()), 0});
    sets_.push_back({orbit, kLeaf, 0});
  }
  return {known->second, place.element};
}

Value ValueTable::reduce(Value left, Value right) {
  const Symmetry::Element shift = symmetry_.difference(right.at, left.at);
  const auto [known, is_new] = tree_of_.try_emplace({left.tree, right.tree, shift},
                                                    static_cast<std::uint32_t>(trees_.size()));
  if (is_new) {
    const Tree &a = trees_[left.tree], &b = trees_[right.tree];
    const Value set = join({a.set, a.set_at}, {b.set, symmetry_.sum(b.set_at, shift)});
    // Capped, since any number of leaves above the number of ranks is too many.
    trees_.push_back({std::min(a.leaves + b.leaves, rank_count_ + 1), set.tree, set.at});
  }
  return {known->second, left.at};
}

Value ValueTable::join(Value a, Value b) {
  Symmetry::Element shift = symmetry_.difference(b.at, a.at);
  const Symmetry::Element back = symmetry_.inverse(shift);
  if (std::pair(b.tree, back) < std::pair(a.tree, shift)) {
    std::swap(a, b);
    shift = back;
  }
  const auto [known, is_new] =
      set_of_.try_emplace({a.tree, b.tree, shift}, static_cast<std::uint32_t>(sets_.size()));
  if (is_new) sets_.push_back({a.tree, b.tree, shift});
  return {known->second, a.at};
}

bool ValueTable::complete(Value value) {
  const Tree& tree = trees_[value.tree];
  return tree.leaves == rank_count_ && covers_all(tree.set);
}

// If there are as many leaves as ranks, every rank is a leaf exactly once unless one is a leaf
// twice. The walk ends at the first repetition, so its length is bounded by the number of ranks.
bool ValueTable::covers_all(std::uint32_t set) {
  const auto [known, is_new] = covers_all_.try_emplace(set, false);
  if (!is_new) return known->second;
  std::vector<bool> seen(static_cast<std::size_t>(rank_count_));
  std::vector<Value> open = {{set, 0}};
  while (!open.empty()) {
    const Value at = open.back();
    open.pop_back();
    const Set& node = sets_[at.tree];
    if (node.right != kLeaf) {
      open.push_back({node.left, at.at});
      open.push_back({node.right, symmetry_.sum(at.at, node.shift)});
      continue;
    }
    const auto rank = static_cast<std::size_t>(symmetry_.rank({node.left, at.at}));
    if (seen[rank]) return false;
    seen[rank] = true;
  }
  covers_all_[set] = true;
  return true;
}

}  // namespace farandole
