// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "schedule/schedule.hpp"

namespace farandole {

/// One line of a schedule's text, read word by word.
///
/// Errors    The first fault is kept and every later read fails, giving zeros and empty names,
///           so that a caller may read a whole line and ask once.
/// Memory    Expressions are bounded in nesting and size; a stack of Expr::kStackMax is enough.
class Line {
 public:
  /// A line inside `loops_open` loops, whose counters its expressions may use.
  Line(std::string_view text, int loops_open);

  bool failed() const { return !fault_.empty(); }
  const std::string& fault() const { return fault_; }
  /// Records the fault "expected ..., found ..."; always returns false.
  bool expected(const std::string& what);

  /// Takes `token`, a whole word or a sign, if it is next.
  bool accept(std::string_view token);
  bool expect(std::string_view token);
  bool expect_end();
  std::int64_t number(std::int64_t low, std::int64_t high);
  std::string name();
  Expr expr() { return exclusive_or(0).expr; }
  Span span();
  /// Nothing for the word "nothing".
  std::optional<Span> span_or_nothing();

 private:
  struct Part {
    Expr expr;
    int stack = 1;  // stack entries that evaluation needs
  };
  Part exclusive_or(int depth);
  Part sum(int depth);
  Part product(int depth);
  Part atom(int depth);
  Part function(int depth, bool is_min);
  Part join(const Part& a, const Part& b, Expr::Op op);
  std::string_view next_token() const;
  void skip_blanks();

  std::string_view rest_;
  int loops_open_;
  std::string fault_;
};

}  // namespace farandole
