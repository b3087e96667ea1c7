// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "schedule/expand.hpp"
#include "schedule/program.hpp"

namespace farandole {

/// Steps a program as program.hpp says and writes down the rounds it comes through, those in
/// which every guard fails left out.
class ProgramStepper {
 public:
  explicit ProgramStepper(const Program& program) : program_(program) {}

  std::vector<ConcreteRound> run() {
    using Kind = Program::Instruction::Kind;
    for (std::size_t i = 0; i < program_.instructions.size();) {
      const Program::Instruction& at = program_.instructions[i];
      const auto depth = static_cast<std::size_t>(at.depth);
      if (at.kind == Kind::kRound) step(at);
      if (at.kind == Kind::kLoopBegin) loops_[depth] = 0;
      if (at.kind == Kind::kLoopEnd && ++loops_[depth] < at.iterations) {
        i = at.jump;
      } else {
        ++i;
      }
    }
    return rounds_;
  }

 private:
  void step(const Program::Instruction& at) {
    ConcreteRound round;
    bool chain_open = false;
    for (std::size_t i = at.first; i < at.first + at.count; ++i) {
      const Action& action = program_.actions[i];
      chain_open = chain_open && action.after_previous;
      if (!holds(action.when)) continue;
      round.push_back({action.kind, action.lane, number(action.peer), concrete(action.source),
                       concrete(action.target), concrete(action.operand), action.incoming_first,
                       chain_open});
      chain_open = true;
    }
    if (!round.empty()) rounds_.push_back(std::move(round));
  }

  bool holds(const std::vector<Guard>& guards) const {
    return std::all_of(guards.begin(), guards.end(), [this](const Guard& guard) {
      return number(guard.low) <= number(guard.value) && number(guard.value) < number(guard.high);
    });
  }

  std::optional<ConcreteSpan> concrete(const std::optional<Span>& span) const {
    if (!span) return std::nullopt;
    return ConcreteSpan{span->buffer, number(span->first), number(span->count),
                        number(span->shape)};
  }

  // No expression of a program asks for the rank.
  std::int64_t number(const Expr& expr) const { return expr.evaluate(-1'000'000, loops_); }

  const Program& program_;
  std::array<std::int64_t, Expr::kLoopDepthMax> loops_{};
  std::vector<ConcreteRound> rounds_;
};

inline std::vector<ConcreteRound> without_empty(std::vector<ConcreteRound> rounds) {
  std::erase_if(rounds, [](const ConcreteRound& round) { return round.empty(); });
  return rounds;
}

}  // namespace farandole
