// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/line.hpp"

#include <algorithm>
#include <charconv>
#include <limits>

namespace farandole {
namespace {

constexpr std::size_t kExprNodeCountMax = 256;
constexpr int kParenthesisDepthMax = 32;
constexpr std::size_t kNameBytesMax = 64;

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || c == '_';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
// Messages are printed and cross into Python, so they stay ASCII whatever the text holds.
std::string quoted(std::string_view text) {
  std::string result(1, '"');
  for (const char c : text) result += c < ' ' || c > '~' ? '?' : c;
  return result += '"';
}

Expr combined(const Expr& a, const Expr& b, Expr::Op op) {
  switch (op) {
    case Expr::Op::kAdd:
      return a + b;
    case Expr::Op::kSubtract:
      return a - b;
    case Expr::Op::kMultiply:
      return a * b;
    case Expr::Op::kDivide:
      return a / b;
    case Expr::Op::kModulo:
      return a % b;
    case Expr::Op::kXor:
      return a ^ b;
    case Expr::Op::kMin:
      return min(a, b);
    case Expr::Op::kMax:
      return max(a, b);
    case Expr::Op::kConstant:
    case Expr::Op::kRank:
    case Expr::Op::kLoop:
      break;
  }
  return a;
}

}  // namespace

Line::Line(std::string_view text, int loops_open) : rest_(text), loops_open_(loops_open) {
  skip_blanks();
}

bool Line::expected(const std::string& what) {
  if (failed()) return false;
  constexpr std::size_t kShownMax = 24;
  fault_ = "expected " + what + ", found ";
  fault_ += rest_.empty() ? "the end of the line" : quoted(rest_.substr(0, kShownMax));
  return false;
}

bool Line::accept(std::string_view token) {
  if (failed() || next_token() != token) return false;
  rest_.remove_prefix(token.size());
  skip_blanks();
  return true;
}

bool Line::expect(std::string_view token) {
  return accept(token) || expected(quoted(token));
}

bool Line::expect_end() {
  return rest_.empty() || expected("the end of the line");
}

std::int64_t Line::number(std::int64_t low, std::int64_t high) {
  std::int64_t value = low;
  const char* end = rest_.data() + rest_.size();
  const auto [stop, error] = std::from_chars(rest_.data(), end, value);
  if (error != std::errc{} || value < low || value > high) {
    expected("a number from " + std::to_string(low) + " to " + std::to_string(high));
  }
  if (failed()) return low;
  rest_.remove_prefix(static_cast<std::size_t>(stop - rest_.data()));
  skip_blanks();
  return value;
}

std::string Line::name() {
  std::size_t size = 0;
  while (size < rest_.size() && (is_letter(rest_[size]) || is_digit(rest_[size]))) ++size;
  if (size == 0 || size > kNameBytesMax) {
    expected("a name of at most " + std::to_string(kNameBytesMax) + " letters a-z, digits and _");
  }
  if (failed()) return {};
  std::string result(rest_.substr(0, size));
  rest_.remove_prefix(size);
  skip_blanks();
  return result;
}

Span Line::span() {
  Span result;
  if (accept("in")) {
    result.buffer = Buffer::kIn;
  } else if (accept("out")) {
    result.buffer = Buffer::kOut;
  } else if (accept("scratch")) {
    result.buffer = Buffer::kScratch;
  } else {
    expected("\"in\", \"out\" or \"scratch\"");
  }
  expect("[");
  result.first = expr();
  if (accept(",")) result.count = expr();
  result.shape = accept("as") ? expr() : result.first;
  expect("]");
  return result;
}

std::optional<Span> Line::span_or_nothing() {
  if (accept("nothing")) return std::nullopt;
  return span();
}

Line::Part Line::exclusive_or(int depth) {
  Part result = sum(depth);
  while (accept("^")) result = join(result, sum(depth), Expr::Op::kXor);
  return result;
}

Line::Part Line::sum(int depth) {
  Part result = product(depth);
  for (;;) {
    if (accept("+")) {
      result = join(result, product(depth), Expr::Op::kAdd);
    } else if (accept("-")) {
      result = join(result, product(depth), Expr::Op::kSubtract);
    } else {
      return result;
    }
  }
}

Line::Part Line::product(int depth) {
  Part result = atom(depth);
  for (;;) {
    if (accept("*")) {
      result = join(result, atom(depth), Expr::Op::kMultiply);
    } else if (accept("/")) {
      result = join(result, atom(depth), Expr::Op::kDivide);
    } else if (accept("%")) {
      result = join(result, atom(depth), Expr::Op::kModulo);
    } else {
      return result;
    }
  }
}

Line::Part Line::atom(int depth) {
  using Limits = std::numeric_limits<std::int64_t>;
  if (depth > kParenthesisDepthMax) {
    expected("at most " + std::to_string(kParenthesisDepthMax) + " nested parentheses");
  }
  if (failed()) return {};
  if (accept("(")) {
    Part result = exclusive_or(depth + 1);
    expect(")");
    return result;
  }
  if (accept("min")) return function(depth + 1, true);
  if (accept("max")) return function(depth + 1, false);
  if (accept("r")) return {Expr::rank()};
  for (int loop = 0; loop < loops_open_; ++loop) {
    const std::string_view counters = "stuv";
    if (accept(counters.substr(static_cast<std::size_t>(loop), 1))) return {Expr::loop(loop)};
  }
  if (!rest_.empty() && (is_digit(rest_[0]) || rest_[0] == '-')) {
    return {number(Limits::min(), Limits::max())};
  }
  expected("a number, r, the counter of a loop around it, min, max or \"(\"");
  return {};
}

Line::Part Line::function(int depth, bool is_min) {
  expect("(");
  const Part a = exclusive_or(depth);
  expect(",");
  const Part b = exclusive_or(depth);
  expect(")");
  return join(a, b, is_min ? Expr::Op::kMin : Expr::Op::kMax);
}

Line::Part Line::join(const Part& a, const Part& b, Expr::Op op) {
  const int stack = std::max(a.stack, b.stack + 1);
  if (stack > Expr::kStackMax ||
      a.expr.nodes().size() + b.expr.nodes().size() >= kExprNodeCountMax) {
    expected("a simpler expression before this");
  }
  if (failed()) return {};
  Expr joined = combined(a.expr, b.expr, op);
  return {joined, joined.is_constant() ? 1 : stack};
}

std::string_view Line::next_token() const {
  std::size_t size = 0;
  while (size < rest_.size() && (is_letter(rest_[size]) || (size > 0 && is_digit(rest_[size])))) {
    ++size;
  }
  if (size == 0) size = rest_.substr(0, 2) == "<=" ? 2 : 1;
  return rest_.substr(0, size);
}

void Line::skip_blanks() {
  rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\r"), rest_.size()));
}

}  // namespace farandole
