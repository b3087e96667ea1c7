// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "farandole/result.hpp"
#include "farandole/types.hpp"
#include "schedule/layout.hpp"
#include "schedule/passes/bound.hpp"
#include "schedule/program.hpp"

namespace farandole {

/// A program and the layouts that it is bound to.
struct Binding {
  std::shared_ptr<const Program> program;
  Layout in = Layout::repeat(Count{0}, 1);
  Layout out = Layout::repeat(Count{0}, 1);
  Layout chunks = Layout::repeat(Count{0}, 1);  // of the data; spans of scratch have these lengths
  DType dtype = DType::kUInt8;
  std::optional<std::int64_t> in_offset;  // as in BoundTerms

  BoundTerms terms() const {
    return {program->collective, in_offset, out.total() * size_of(dtype)};
  }
};

/// How transfers with a rank of the group may follow each other; see Capabilities.
struct Flow {
  bool follows = false;
  Bytes follow_bytes;
};
using FlowOf = std::function<Flow(int rank)>;

/// Walks a program and binds one round after the other.
class Binder {
 public:
  enum class Step : std::uint8_t { kRound, kEnd, kUnequal };

  Binder(const Binding& binding, const FlowOf& flow) : binding_(binding), flow_(flow) {}

  /// Appends the actions of the next round in which this rank does something; kUnequal if an action
  /// would copy between places of different lengths. Allocates nothing if `actions` has capacity
  /// for the largest round.
  Step next(std::vector<BoundAction>& actions, BoundRound& round);
  void restart() {
    position_ = 0;
    step_ = 0;
  }
  std::size_t position() const { return position_; }
  std::span<const std::int64_t> loops() const { return loops_; }

 private:
  bool takes_part(const Action& action) const;
  bool bind_round(const Program::Instruction& instruction, std::vector<BoundAction>& actions,
                  BoundRound& round);
  std::optional<BoundAction> bind(const Action& action) const;
  ByteSpan place(const Span& span) const;
  std::int64_t value(const Expr& expr) const { return expr.evaluate(0, loops_); }

  const Binding& binding_;
  const FlowOf& flow_;
  std::size_t position_ = 0;  // in the program's instructions
  std::uint32_t step_ = 0;
  std::array<std::int64_t, Expr::kLoopDepthMax> loops_{};
};

/// A program with its places in the buffers and with the decisions about what may overlap: all that
/// a run needs except the addresses of the buffers and the transports. A run of more than
/// kActionsMax actions is bound round by round while it runs, since as a whole it would not stay in
/// a cache.
///
/// Threads   immutable; share freely.
/// Source    docs/design/0018.
class BoundProgram {
 public:
  static constexpr std::size_t kActionsMax = 256;

  /// Errors    kInternal: an action would copy between places of different lengths, or the passes
  ///           let actions overlap that must not.
  static Result<std::shared_ptr<const BoundProgram>> bind(Binding binding, FlowOf flow);

  const Binding& binding() const { return binding_; }
  const Program& program() const { return *binding_.program; }
  const BoundTerms& terms() const { return terms_; }
  /// Whether actions() and rounds() are those of a whole run; else they are empty.
  bool is_whole() const { return whole_; }
  std::span<const BoundAction> actions() const { return actions_; }
  std::span<const BoundRound> rounds() const { return rounds_; }
  /// A binder that starts at the beginning. This program must outlive it.
  Binder binder() const { return Binder(binding_, flow_); }

 private:
  BoundProgram(Binding binding, FlowOf flow);
  bool bind_all();

  Binding binding_;
  FlowOf flow_;
  BoundTerms terms_;
  bool whole_ = false;
  std::vector<BoundAction> actions_;
  std::vector<BoundRound> rounds_;
};

}  // namespace farandole
