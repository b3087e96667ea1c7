// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/expr.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <limits>
#include <utility>

namespace farandole {
namespace {

using Op = Expr::Op;

bool is_operand(Op op) {
  return op == Op::kConstant || op == Op::kRank || op == Op::kLoop;
}

std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
  if (b == 0) return 0;
  if (b == -1) return static_cast<std::int64_t>(0 - static_cast<std::uint64_t>(a));
  const std::int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

std::int64_t euclidean_modulo(std::int64_t a, std::int64_t b) {
  if (b == 0 || b == -1) return 0;
  const std::int64_t rest = a % b;
  if (rest >= 0) return rest;
  return b > 0 ? rest + b : rest - b;
}

[[maybe_unused]] bool is_well_formed(const std::vector<Expr::Node>& nodes) {
  int depth = 0;
  for (const Expr::Node& node : nodes) {
    if (node.op == Op::kLoop && (node.value < 0 || node.value >= Expr::kLoopDepthMax)) return false;
    depth += is_operand(node.op) ? 1 : -1;
    if (depth < 1 || depth > Expr::kStackMax) return false;
  }
  return depth == 1;
}

struct Symbol {
  const char* text;
  int precedence;  // binds tighter when larger; 0: written as a function
};

Symbol symbol_of(Op op) {
  switch (op) {
    case Op::kAdd:
      return {" + ", 2};
    case Op::kSubtract:
      return {" - ", 2};
    case Op::kMultiply:
      return {" * ", 3};
    case Op::kDivide:
      return {" / ", 3};
    case Op::kModulo:
      return {" % ", 3};
    case Op::kXor:
      return {" ^ ", 1};
    case Op::kMin:
      return {"min", 0};
    case Op::kMax:
      return {"max", 0};
    case Op::kConstant:
    case Op::kRank:
    case Op::kLoop:
      break;
  }
  return {"", 0};
}

struct Text {
  std::string text;
  int precedence;
  std::string within(int outer) const { return precedence < outer ? "(" + text + ")" : text; }
};
constexpr int kAtom = 4;

Text text_of(const Expr::Node& node) {
  switch (node.op) {
    case Op::kRank:
      return {"r", kAtom};
    case Op::kLoop:
      return {std::string(1, "stuv"[node.value]), kAtom};
    default:
      return {std::to_string(node.value), kAtom};
  }
}

Text text_of(Op op, const Text& a, const Text& b) {
  const Symbol symbol = symbol_of(op);
  if (symbol.precedence == 0)
    return {std::string(symbol.text) + "(" + a.text + ", " + b.text + ")", kAtom};
  return {a.within(symbol.precedence) + symbol.text + b.within(symbol.precedence + 1),
          symbol.precedence};
}

}  // namespace

Expr::Expr(std::int64_t constant) : nodes_{{Op::kConstant, constant}} {}

Expr Expr::rank() {
  return from_nodes({{Op::kRank, 0}});
}

Expr Expr::loop(int depth) {
  return from_nodes({{Op::kLoop, depth}});
}

Expr Expr::from_nodes(std::vector<Node> nodes) {
  assert(is_well_formed(nodes));
  Expr expr;
  expr.nodes_ = std::move(nodes);
  return expr;
}

// Unsigned arithmetic, so that a schedule read from a file wraps where it would overflow.
std::int64_t Expr::apply(Op op, std::int64_t a, std::int64_t b) {
  const auto x = static_cast<std::uint64_t>(a), y = static_cast<std::uint64_t>(b);
  switch (op) {
    case Op::kAdd:
      return static_cast<std::int64_t>(x + y);
    case Op::kSubtract:
      return static_cast<std::int64_t>(x - y);
    case Op::kMultiply:
      return static_cast<std::int64_t>(x * y);
    case Op::kDivide:
      return floor_divide(a, b);
    case Op::kModulo:
      return euclidean_modulo(a, b);
    case Op::kXor:
      return static_cast<std::int64_t>(x ^ y);
    case Op::kMin:
      return std::min(a, b);
    case Op::kMax:
      return std::max(a, b);
    case Op::kConstant:
    case Op::kRank:
    case Op::kLoop:
      break;
  }
  return 0;
}

Expr Expr::combine(const Expr& a, const Expr& b, Op op) {
  if (a.is_constant() && b.is_constant()) return apply(op, a.nodes_[0].value, b.nodes_[0].value);
  std::vector<Node> nodes = a.nodes_;
  nodes.insert(nodes.end(), b.nodes_.begin(), b.nodes_.end());
  nodes.push_back({op, 0});
  return from_nodes(std::move(nodes));
}

std::int64_t Expr::evaluate(std::int64_t rank, std::span<const std::int64_t> loops) const {
  std::array<std::int64_t, kStackMax> stack;
  std::size_t top = 0;
  for (const Node& node : nodes_) {
    switch (node.op) {
      case Op::kConstant:
        stack[top++] = node.value;
        break;
      case Op::kRank:
        stack[top++] = rank;
        break;
      case Op::kLoop:
        stack[top++] = loops[static_cast<std::size_t>(node.value)];
        break;
      default:
        --top;
        stack[top - 1] = apply(node.op, stack[top - 1], stack[top]);
    }
  }
  return stack[0];
}

Expr Expr::specialize(std::int64_t rank) const {
  std::vector<Expr> stack;
  for (const Node& node : nodes_) {
    if (node.op == Op::kRank) {
      stack.emplace_back(rank);
    } else if (is_operand(node.op)) {
      stack.push_back(from_nodes({node}));
    } else {
      const Expr b = std::move(stack.back());
      stack.pop_back();
      stack.back() = combine(stack.back(), b, node.op);
    }
  }
  return stack.front();
}

bool Expr::uses(Op op) const {
  return std::any_of(nodes_.begin(), nodes_.end(),
                     [op](const Node& node) { return node.op == op; });
}

std::string Expr::text() const {
  std::vector<Text> stack;
  for (const Node& node : nodes_) {
    if (is_operand(node.op)) {
      stack.push_back(text_of(node));
    } else {
      const Text b = std::move(stack.back());
      stack.pop_back();
      stack.back() = text_of(node.op, stack.back(), b);
    }
  }
  return stack.front().text;
}

}  // namespace farandole
