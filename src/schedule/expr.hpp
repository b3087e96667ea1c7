// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace farandole {

/// An integer expression over the rank `r` and the counters of the loops around it: the indices
/// of a schedule. `%` is Euclidean (never negative), `/` floors, `^` is exclusive or. Every
/// expression has a value: a divisor of 0 gives 0, and overflow wraps.
///
/// Kept in postfix order, so that evaluation needs no recursion and no memory. At most kStackMax
/// operands may be pending, which the builders below assert.
///
/// Threads   immutable once built; share freely.
class Expr {
 public:
  enum class Op : std::uint8_t {
    kConstant,
    kRank,
    kLoop,
    kAdd,
    kSubtract,
    kMultiply,
    kDivide,
    kModulo,
    kXor,
    kMin,
    kMax,
  };
  struct Node {
    Op op;
    std::int64_t value;  // kConstant: the number. kLoop: depth of the loop, outermost 0.
    bool operator==(const Node&) const = default;
  };
  static constexpr int kStackMax = 16;
  static constexpr int kLoopDepthMax = 4;

  Expr() : Expr(0) {}
  Expr(std::int64_t constant);  // NOLINT: numbers are expressions
  static Expr rank();
  static Expr loop(int depth);
  static Expr from_nodes(std::vector<Node> nodes);

  /// Value at one rank and one iteration; `loops[d]` is the counter of the loop at depth d.
  std::int64_t evaluate(std::int64_t rank, std::span<const std::int64_t> loops) const;
  /// The result of an operator (not an operand) on two values.
  static std::int64_t apply(Op op, std::int64_t a, std::int64_t b);
  /// The same expression with the rank known, constants folded.
  Expr specialize(std::int64_t rank) const;
  bool is_constant() const { return nodes_.size() == 1 && nodes_[0].op == Op::kConstant; }
  bool uses(Op op) const;
  const std::vector<Node>& nodes() const { return nodes_; }
  /// Infix text, as in `(r - s - 1) % 8`; loop counters are s, t, u, v from the outside in.
  std::string text() const;
  bool operator==(const Expr&) const = default;

  friend Expr operator+(const Expr& a, const Expr& b) { return combine(a, b, Op::kAdd); }
  friend Expr operator-(const Expr& a, const Expr& b) { return combine(a, b, Op::kSubtract); }
  friend Expr operator*(const Expr& a, const Expr& b) { return combine(a, b, Op::kMultiply); }
  friend Expr operator/(const Expr& a, const Expr& b) { return combine(a, b, Op::kDivide); }
  friend Expr operator%(const Expr& a, const Expr& b) { return combine(a, b, Op::kModulo); }
  friend Expr operator^(const Expr& a, const Expr& b) { return combine(a, b, Op::kXor); }
  friend Expr min(const Expr& a, const Expr& b) { return combine(a, b, Op::kMin); }
  friend Expr max(const Expr& a, const Expr& b) { return combine(a, b, Op::kMax); }

 private:
  static Expr combine(const Expr& a, const Expr& b, Op op);
  std::vector<Node> nodes_;
};

}  // namespace farandole
