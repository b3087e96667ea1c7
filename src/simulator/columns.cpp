// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "simulator/columns.hpp"

#include <algorithm>
#include <bit>

namespace farandole {
namespace {

using Op = Expr::Op;
using Values = std::vector<std::int64_t>;

// Shift and mask are floor division and Euclidean remainder, also of negative numbers.
bool by_power_of_two(Op op, Values& values, std::int64_t divisor) {
  if (divisor < 1 || !std::has_single_bit(static_cast<std::uint64_t>(divisor))) return false;
  const int shift = std::countr_zero(static_cast<std::uint64_t>(divisor));
  if (op == Op::kDivide) {
    for (std::int64_t& value : values) value >>= shift;
  } else {
    for (std::int64_t& value : values) value &= divisor - 1;
  }
  return true;
}

// Counters and ranks are small: a division of 32 bits takes a third of the time of one of 64.
bool by_small(Op op, Values& values, std::int64_t divisor) {
  constexpr std::int64_t kSmall = std::int64_t{1} << 31;
  if (divisor < 1 || divisor >= kSmall) return false;
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  if (values.empty() || *low < -kSmall || *high >= kSmall) return false;
  const auto by = static_cast<std::uint32_t>(divisor);
  // Values are moved up by a multiple of the divisor, so that none is negative.
  const std::int64_t turns = *low < 0 ? (divisor - 1 - *low) / divisor : 0;
  if (*high + turns * divisor >= 2 * kSmall) return false;
  for (std::int64_t& value : values) {
    const auto moved = static_cast<std::uint32_t>(value + turns * divisor);
    value = op == Op::kDivide ? std::int64_t{moved / by} - turns : std::int64_t{moved % by};
  }
  return true;
}

// Calls body with the operator as a function; the common ones are written out, for the compiler.
template <class Body>
void with_operator(Op op, Body body) {
  using Word = std::uint64_t;
  const auto number = [](Word word) { return static_cast<std::int64_t>(word); };
  switch (op) {
    case Op::kAdd:
      return body([=](std::int64_t a, std::int64_t b) {
        return number(static_cast<Word>(a) + static_cast<Word>(b));
      });
    case Op::kSubtract:
      return body([=](std::int64_t a, std::int64_t b) {
        return number(static_cast<Word>(a) - static_cast<Word>(b));
      });
    case Op::kMultiply:
      return body([=](std::int64_t a, std::int64_t b) {
        return number(static_cast<Word>(a) * static_cast<Word>(b));
      });
    default:
      return body([=](std::int64_t a, std::int64_t b) { return Expr::apply(op, a, b); });
  }
}

}  // namespace

std::span<const std::int64_t> Columns::evaluate(const Expr& expr,
                                                std::span<const std::int32_t> ranks,
                                                std::span<const std::int64_t> loops) {
  top_ = 0;
  for (const Expr::Node& node : expr.nodes()) {
    if (node.op == Op::kConstant || node.op == Op::kRank || node.op == Op::kLoop) {
      push(node, ranks, loops);
    } else {
      apply(node.op, ranks.size());
    }
  }
  Column& result = stack_[0];
  if (result.is_scalar) result.values.assign(ranks.size(), result.scalar);
  return result.values;
}

void Columns::push(const Expr::Node& node, std::span<const std::int32_t> ranks,
                   std::span<const std::int64_t> loops) {
  Column& column = stack_[top_++];
  column.is_scalar = node.op != Op::kRank;
  if (column.is_scalar) {
    column.scalar = node.op == Op::kLoop ? loops[static_cast<std::size_t>(node.value)] : node.value;
  } else {
    column.values.assign(ranks.begin(), ranks.end());
  }
}

void Columns::apply(Op op, std::size_t count) {
  Column &left = stack_[top_ - 2], &right = stack_[top_ - 1];
  --top_;
  if (left.is_scalar && right.is_scalar) {
    left.scalar = Expr::apply(op, left.scalar, right.scalar);
    return;
  }
  if (right.is_scalar && (op == Op::kDivide || op == Op::kModulo) &&
      (by_power_of_two(op, left.values, right.scalar) || by_small(op, left.values, right.scalar))) {
    return;
  }
  with_operator(op, [&](auto combine) {
    if (right.is_scalar) {
      for (std::int64_t& value : left.values) value = combine(value, right.scalar);
    } else if (left.is_scalar) {
      left.values.resize(count);
      for (std::size_t i = 0; i < count; ++i) {
        left.values[i] = combine(left.scalar, right.values[i]);
      }
    } else {
      for (std::size_t i = 0; i < count; ++i) {
        left.values[i] = combine(left.values[i], right.values[i]);
      }
    }
  });
  left.is_scalar = false;
}

}  // namespace farandole
