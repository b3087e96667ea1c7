// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "schedule/verify/symmetry.hpp"

namespace farandole {

/// What a chunk can hold: an expression tree whose leaves are the ranks' inputs. Trees that differ
/// only by a turn of the ranks share a number, and `at` says how far this one is turned; so equal
/// values mean equal trees, and equal trees give equal bits.
struct Value {
  std::uint32_t tree = 0;
  Symmetry::Element at = 0;
  bool operator==(const Value&) const = default;
};

/// The trees of one run.
class ValueTable {
 public:
  ValueTable(const Symmetry& symmetry, std::int64_t rank_count);
  Value leaf(Symmetry::Point place);
  /// left (+) right, in this order.
  Value reduce(Value left, Value right);
  /// The number of leaves, repeated ones included, at most rank_count + 1.
  std::int64_t contributions(Value value) const { return trees_[value.tree].leaves; }
  /// Whether every rank is a leaf exactly once.
  bool complete(Value value);

 private:
  // The inputs that a tree combines, in any order: many trees share one set.
  struct Set {
    std::uint32_t left, right;  // for a leaf: its orbit in `left`, kLeaf in `right`
    Symmetry::Element shift;    // from left to right
  };
  struct Tree {
    std::int64_t leaves;
    std::uint32_t set;
    Symmetry::Element set_at;
  };
  struct Key {
    std::uint32_t left, right;
    Symmetry::Element shift;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    std::size_t operator()(const Key& key) const;
  };
  static constexpr std::uint32_t kLeaf = 0xffffffff;

  Value join(Value a, Value b);  // of sets
  bool covers_all(std::uint32_t set);

  const Symmetry& symmetry_;
  const std::int64_t rank_count_;
  std::vector<Tree> trees_;
  std::vector<Set> sets_;
  std::unordered_map<Key, std::uint32_t, Hash> tree_of_, set_of_;
  std::unordered_map<std::uint32_t, bool> covers_all_;  // by set
};

}  // namespace farandole
