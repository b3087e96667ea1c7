// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "schedule/schedule.hpp"

namespace farandole {

/// How an expression f changes when the rank turns, r → r', for every rank and iteration.
struct Turning {
  enum class Kind : std::uint8_t {
    kFixed,      // f(r') = f(r)
    kTurns,      // f(r') is f(r) with its digit at stride `by` one higher, modulo the size
    kCongruent,  // f(r') = f(r) + by, modulo `modulus`
    kUnknown,
  };
  Kind kind = Kind::kUnknown;
  std::int64_t by = 0, modulus = 0;
};

/// The analysis of one expression for one rotation.
///
/// Source    an abstract interpretation; turning_test.cpp compares it with evaluation.
class TurningExpr {
 public:
  /// `loop_counts`: iterations of the loops around it, the outermost first.
  TurningExpr(const Expr& expr, const Rotation& rotation, std::int64_t rank_count,
              std::span<const std::int64_t> loop_counts);

  struct Range {
    std::int64_t low, high;  // inclusive
  };
  Turning turning() const { return turning(root_); }
  /// Bounds of the values; wide when unknown.
  Range range() const { return nodes_[root_].range; }
  /// Bounds of the values modulo `modulus` > 0.
  Range residue(std::int64_t modulus) const { return residue(root_, modulus); }

 private:
  struct Node {
    Expr::Op op;
    std::int64_t value;
    std::size_t left, right;
    Range range;
  };
  bool is_constant(std::size_t node) const { return nodes_[node].op == Expr::Op::kConstant; }
  Range range_of(const Node& node) const;
  Range residue(std::size_t node, std::int64_t modulus) const;
  Range residue_by_range(std::size_t node, std::int64_t modulus) const;
  Turning turning(std::size_t node) const;
  Turning sum(std::size_t node, bool subtract) const;
  Turning product(std::size_t node) const;
  Turning quotient(std::size_t node) const;
  Turning remainder(std::size_t node) const;
  Turning exclusive_or(std::size_t node) const;
  Turning congruent(Turning turning) const;
  bool carries_never(std::size_t turning, std::size_t fixed, std::int64_t stride) const;

  std::int64_t size_, rank_stride_;
  std::vector<Node> nodes_;
  std::size_t root_ = 0;
};

}  // namespace farandole
