// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "schedule/expr.hpp"

namespace farandole {

/// Evaluates an expression for many ranks at once, term by term, so that each term is decoded once
/// and not once per rank. Values are those of Expr::evaluate().
///
/// Threads   one at a time.
class Columns {
 public:
  /// [ranks], valid until the next call.
  std::span<const std::int64_t> evaluate(const Expr& expr, std::span<const std::int32_t> ranks,
                                         std::span<const std::int64_t> loops);

 private:
  // One entry of the stack; a value that is the same for all ranks is kept once.
  struct Column {
    bool is_scalar = true;
    std::int64_t scalar = 0;
    std::vector<std::int64_t> values;
  };
  void push(const Expr::Node& node, std::span<const std::int32_t> ranks,
            std::span<const std::int64_t> loops);
  void apply(Expr::Op op, std::size_t count);

  std::array<Column, Expr::kStackMax> stack_;
  std::size_t top_ = 0;
};

}  // namespace farandole
