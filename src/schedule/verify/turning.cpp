// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/verify/turning.hpp"

#include <algorithm>
#include <numeric>

namespace farandole {
namespace {

using Kind = Turning::Kind;
using Range = TurningExpr::Range;

// Beyond these bounds everything is unknown, so that no sum or product of two bounds overflows.
constexpr std::int64_t kBound = std::int64_t{1} << 31;
constexpr Range kAnything{-(kBound * kBound), kBound * kBound};

bool bounded(Range range) {
  return range.low >= -kBound && range.high <= kBound;
}

std::int64_t floor_div(std::int64_t a, std::int64_t b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

std::int64_t floor_mod(std::int64_t a, std::int64_t b) {
  return a - floor_div(a, b) * b;
}

// Drops a claim whose numbers are so large that the next step could not multiply them.
Turning within_bounds(Turning turning) {
  const bool fits = turning.by >= -kBound && turning.by <= kBound && turning.modulus <= kBound;
  return fits ? turning : Turning{};
}

Range hull(std::initializer_list<std::int64_t> values) {
  return {std::min(values), std::max(values)};
}

Range tighter(Range a, Range b) {
  return a.high - a.low <= b.high - b.low ? a : b;
}

}  // namespace

TurningExpr::TurningExpr(const Expr& expr, const Rotation& rotation, std::int64_t rank_count,
                         std::span<const std::int64_t> loop_counts)
    : size_(rotation.size), rank_stride_(rotation.rank_stride) {
  std::vector<std::size_t> stack;
  for (const Expr::Node& from : expr.nodes()) {
    Node node{from.op, from.value, 0, 0, kAnything};
    if (from.op == Expr::Op::kConstant) {
      node.range = {from.value, from.value};
    } else if (from.op == Expr::Op::kRank) {
      node.range = {0, rank_count - 1};
    } else if (from.op == Expr::Op::kLoop) {
      node.range = {0, loop_counts[static_cast<std::size_t>(from.value)] - 1};
    } else {
      node.right = stack.back();
      stack.pop_back();
      node.left = stack.back();
      stack.pop_back();
      node.range = range_of(node);
    }
    stack.push_back(nodes_.size());
    nodes_.push_back(node);
  }
  root_ = stack.back();
}

Range TurningExpr::range_of(const Node& node) const {
  const Range a = nodes_[node.left].range, b = nodes_[node.right].range;
  if (!bounded(a) || !bounded(b)) return kAnything;
  switch (node.op) {
    case Expr::Op::kAdd:
      return {a.low + b.low, a.high + b.high};
    case Expr::Op::kSubtract:
      return {a.low - b.high, a.high - b.low};
    case Expr::Op::kMultiply:
      return hull({a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high});
    case Expr::Op::kMin:
      return {std::min(a.low, b.low), std::min(a.high, b.high)};
    case Expr::Op::kMax:
      return {std::max(a.low, b.low), std::max(a.high, b.high)};
    case Expr::Op::kDivide:
      if (b.low != b.high || b.low < 1) return kAnything;
      return {floor_div(a.low, b.low), floor_div(a.high, b.low)};
    case Expr::Op::kModulo:
      if (b.low != b.high || b.low < 1) return kAnything;
      if (a.low >= 0 && a.high < b.low) return a;
      return {0, b.low - 1};
    default:
      return kAnything;
  }
}

Range TurningExpr::residue_by_range(std::size_t node, std::int64_t modulus) const {
  const Range range = nodes_[node].range;
  const std::int64_t turns = floor_div(range.low, modulus);
  if (!bounded(range) || turns != floor_div(range.high, modulus)) return {0, modulus - 1};
  return {range.low - turns * modulus, range.high - turns * modulus};
}

Range TurningExpr::residue(std::size_t at, std::int64_t modulus) const {
  const Node& node = nodes_[at];
  const Range known = residue_by_range(at, modulus);
  if (modulus > kBound) return known;
  switch (node.op) {
    case Expr::Op::kAdd: {
      const Range a = residue(node.left, modulus), b = residue(node.right, modulus);
      return a.high + b.high < modulus ? tighter({a.low + b.low, a.high + b.high}, known) : known;
    }
    case Expr::Op::kMultiply: {
      if (!is_constant(node.left) && !is_constant(node.right)) return known;
      const bool left = is_constant(node.left);
      const std::int64_t factor = nodes_[left ? node.left : node.right].value;
      if (factor % modulus == 0) return {0, 0};
      if (factor < 1 || modulus % factor != 0) return known;
      const Range of = residue(left ? node.right : node.left, modulus / factor);
      return tighter({of.low * factor, of.high * factor}, known);
    }
    case Expr::Op::kModulo: {
      if (!is_constant(node.right)) return known;
      const std::int64_t by = nodes_[node.right].value;
      if (by < 1) return known;
      if (by % modulus == 0) return tighter(residue(node.left, modulus), known);
      return by <= modulus ? tighter(residue(node.left, by), known) : known;
    }
    case Expr::Op::kDivide: {
      if (!is_constant(node.right)) return known;
      const std::int64_t by = nodes_[node.right].value;
      if (by < 1 || by > kBound / modulus) return known;
      const Range of = residue(node.left, modulus * by);
      return tighter({of.low / by, of.high / by}, known);
    }
    default:
      return known;
  }
}

Turning TurningExpr::congruent(Turning turning) const {
  if (turning.kind == Kind::kFixed) return {Kind::kCongruent, 0, 0};  // modulo 0: equal
  if (turning.kind != Kind::kTurns) return turning;
  return within_bounds({Kind::kCongruent, turning.by, turning.by * size_});
}

Turning TurningExpr::turning(std::size_t at) const {
  const Node& node = nodes_[at];
  switch (node.op) {
    case Expr::Op::kConstant:
    case Expr::Op::kLoop:
      return {Kind::kFixed};
    case Expr::Op::kRank:
      return {Kind::kTurns, rank_stride_};
    default:
      break;
  }
  const bool fixed =
      turning(node.left).kind == Kind::kFixed && turning(node.right).kind == Kind::kFixed;
  if (fixed) return {Kind::kFixed};
  switch (node.op) {
    case Expr::Op::kAdd:
      return sum(at, false);
    case Expr::Op::kSubtract:
      return sum(at, true);
    case Expr::Op::kMultiply:
      return product(at);
    case Expr::Op::kDivide:
      return quotient(at);
    case Expr::Op::kModulo:
      return remainder(at);
    case Expr::Op::kXor:
      return exclusive_or(at);
    default:
      return {};
  }
}

// Whether adding `fixed` leaves the digit of `turning` at `stride` alone and carries nothing into
// it.
bool TurningExpr::carries_never(std::size_t turning, std::size_t fixed, std::int64_t stride) const {
  return residue(fixed, stride * size_).high + residue(turning, stride).high < stride;
}

Turning TurningExpr::sum(std::size_t at, bool subtract) const {
  const Node& node = nodes_[at];
  const Turning a = turning(node.left), b = turning(node.right);
  if (!subtract && a.kind == Kind::kTurns && b.kind == Kind::kFixed &&
      carries_never(node.left, node.right, a.by)) {
    return a;
  }
  if (!subtract && b.kind == Kind::kTurns && a.kind == Kind::kFixed &&
      carries_never(node.right, node.left, b.by)) {
    return b;
  }
  const Turning x = congruent(a), y = congruent(b);
  if (x.kind != Kind::kCongruent || y.kind != Kind::kCongruent) return {};
  const std::int64_t by = subtract ? x.by - y.by : x.by + y.by;
  return within_bounds({Kind::kCongruent, by, std::gcd(x.modulus, y.modulus)});
}

Turning TurningExpr::product(std::size_t at) const {
  const Node& node = nodes_[at];
  const bool left = is_constant(node.left);
  if (!left && !is_constant(node.right)) return {};
  const std::int64_t factor = nodes_[left ? node.left : node.right].value;
  const Turning of = turning(left ? node.right : node.left);
  if (factor > kBound || factor < -kBound) return {};
  if (of.kind == Kind::kTurns && factor > 0) {
    return within_bounds({Kind::kTurns, of.by * factor});
  }
  const Turning x = congruent(of);
  if (x.kind != Kind::kCongruent) return {};
  return within_bounds(
      {Kind::kCongruent, x.by * factor, x.modulus * (factor < 0 ? -factor : factor)});
}

Turning TurningExpr::quotient(std::size_t at) const {
  const Node& node = nodes_[at];
  const Turning of = turning(node.left);
  if (!is_constant(node.right) || of.kind != Kind::kTurns) return {};
  const std::int64_t by = nodes_[node.right].value;
  if (by < 1) return {};
  if (by % (of.by * size_) == 0) return {Kind::kFixed};
  return of.by % by == 0 ? Turning{Kind::kTurns, of.by / by} : Turning{};
}

Turning TurningExpr::remainder(std::size_t at) const {
  const Node& node = nodes_[at];
  const Turning of = turning(node.left);
  if (!is_constant(node.right)) return {};
  const std::int64_t by = nodes_[node.right].value;
  if (by < 1) return {};
  if (of.kind == Kind::kTurns) {
    if (by % (of.by * size_) == 0) return of;
    if (of.by % by == 0) return {Kind::kFixed};
  }
  const Turning x = congruent(of);
  if (x.kind != Kind::kCongruent || x.modulus % by != 0) return {};
  const std::int64_t step = floor_mod(x.by, by);
  if (step == 0) return {Kind::kFixed};
  if (step <= by / size_ && step * size_ == by) return {Kind::kTurns, step};
  return {Kind::kCongruent, step, by};
}

// Turning a binary digit flips one bit, as exclusive or does, whatever the other bits are.
Turning TurningExpr::exclusive_or(std::size_t at) const {
  const Turning a = turning(nodes_[at].left), b = turning(nodes_[at].right);
  const Turning& turns = a.kind == Kind::kTurns ? a : b;
  const Turning& other = a.kind == Kind::kTurns ? b : a;
  const bool bit = size_ == 2 && (turns.by & (turns.by - 1)) == 0;
  return bit && turns.kind == Kind::kTurns && other.kind == Kind::kFixed ? turns : Turning{};
}

}  // namespace farandole
