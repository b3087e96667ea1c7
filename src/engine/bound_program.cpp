// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/bound_program.hpp"

#include <algorithm>
#include <utility>

#include "schedule/passes/overlap.hpp"

namespace farandole {
namespace {

using Kind = Program::Instruction::Kind;

/// The number of actions in a whole run, capped at kActionsMax + 1.
std::size_t actions_in(const Program& program) {
  constexpr std::size_t kMany = BoundProgram::kActionsMax + 1;
  std::size_t count = 0;
  std::array<std::size_t, Expr::kLoopDepthMax + 1> times{1};  // by depth
  for (const Program::Instruction& instruction : program.instructions) {
    const auto depth = static_cast<std::size_t>(instruction.depth);
    if (instruction.kind == Kind::kLoopBegin) {
      const auto iterations = static_cast<std::size_t>(instruction.iterations);
      times[depth + 1] = std::min(times[depth] * std::min(iterations, kMany), kMany);
    } else if (instruction.kind == Kind::kRound) {
      count = std::min(count + times[depth] * instruction.count, kMany);
    }
  }
  return count;
}

Error unequal(const Program& program) {
  return Error{ErrorKind::kInternal, std::string(name(program.collective)) + " by " +
                                         program.algorithm +
                                         " would copy between chunks of different lengths"};
}

}  // namespace

Binder::Step Binder::next(std::vector<BoundAction>& actions, BoundRound& round) {
  const auto& instructions = binding_.program->instructions;
  while (position_ < instructions.size()) {
    const Program::Instruction& instruction = instructions[position_];
    const auto depth = static_cast<std::size_t>(instruction.depth);
    switch (instruction.kind) {
      case Kind::kLoopBegin:
        loops_[depth] = 0;
        position_ = instruction.iterations > 0 ? position_ + 1 : instruction.jump;
        break;
      case Kind::kLoopEnd:
        position_ = ++loops_[depth] < instruction.iterations ? instruction.jump : position_ + 1;
        break;
      case Kind::kRound:
        ++position_;
        if (!bind_round(instruction, actions, round)) return Step::kUnequal;
        if (round.count > 0) return Step::kRound;
        break;
    }
  }
  return Step::kEnd;
}

bool Binder::bind_round(const Program::Instruction& instruction, std::vector<BoundAction>& actions,
                        BoundRound& round) {
  const BoundTerms terms = binding_.terms();
  round = {.first = static_cast<std::uint32_t>(actions.size()), .position = position_};
  bool after_nothing = true;  // what comes before the next action is done
  for (std::uint32_t i = instruction.first; i < instruction.first + instruction.count; ++i) {
    const Action& action = binding_.program->actions[i];
    if (!takes_part(action)) continue;
    auto bound = bind(action);
    if (!bound) return false;
    bound->held = action.after_previous && !after_nothing;
    const auto before = static_cast<std::uint32_t>(actions.size()) - 1;
    if (bound->held) release(terms, actions[before], before, *bound);
    after_nothing = !bound->held && is_idle(terms, *bound);
    if (after_nothing) continue;
    actions.push_back(*bound);
    ++round.count;
  }
  ++step_;
  return true;
}

bool Binder::takes_part(const Action& action) const {
  return std::ranges::all_of(action.when, [&](const Guard& guard) {
    const std::int64_t at = value(guard.value);
    return value(guard.low) <= at && at < value(guard.high);
  });
}

/// None if the places of a local action differ in length. The lengths of `in` and `out` may come
/// from different arguments, and for a local action no transport compares both ends.
std::optional<BoundAction> Binder::bind(const Action& action) const {
  BoundAction bound{.action = &action, .step = step_};
  if (action.source) bound.source = place(*action.source);
  if (action.target) bound.target = place(*action.target);
  if (action.operand) bound.operand = place(*action.operand);
  if (action.operand && bound.operand.bytes != bound.target.bytes) return std::nullopt;
  if (bound.is_local()) {
    if (bound.source.bytes != bound.target.bytes) return std::nullopt;
    return bound;
  }
  bound.peer = static_cast<std::int32_t>(binding_.program->rank_at(value(action.peer)));
  bound.bytes = bound.sends() ? bound.source.bytes : bound.target.bytes;
  const Flow flow = flow_(bound.peer);
  bound.follow_bytes = flow.follow_bytes;
  bound.streams = flow.follows && bound.bytes > flow.follow_bytes;
  return bound;
}

ByteSpan Binder::place(const Span& span) const {
  const Bytes element = size_of(binding_.dtype);
  const std::int64_t first = value(span.first);
  const std::int64_t count = value(span.count);
  if (span.buffer == Buffer::kScratch) {
    const Bytes slot = binding_.chunks.chunk_elements_max() * element;
    return {span.buffer, static_cast<std::size_t>(first) * slot.value(),
            binding_.chunks.length(value(span.shape), count) * element};
  }
  const Layout& layout = span.buffer == Buffer::kIn ? binding_.in : binding_.out;
  return {span.buffer, (layout.offset(first) * element).value(),
          layout.length(first, count) * element};
}

BoundProgram::BoundProgram(Binding binding, FlowOf flow)
    : binding_(std::move(binding)), flow_(std::move(flow)), terms_(binding_.terms()) {}

Result<std::shared_ptr<const BoundProgram>> BoundProgram::bind(Binding binding, FlowOf flow) {
  const std::shared_ptr<BoundProgram> bound(new BoundProgram(std::move(binding), std::move(flow)));
  const std::size_t count = actions_in(bound->program());
  bound->whole_ = count <= kActionsMax;
  if (!bound->whole_) return std::shared_ptr<const BoundProgram>(bound);
  bound->actions_.reserve(count);
  bound->rounds_.reserve(count);
  if (!bound->bind_all()) return unequal(bound->program());
  auto right = check_overlaps(bound->terms_, bound->actions_, bound->rounds_);
  if (!right) return right.error();
  return std::shared_ptr<const BoundProgram>(bound);
}

bool BoundProgram::bind_all() {
  Binder binder = this->binder();
  BoundRound round;
  for (;;) {
    const Binder::Step step = binder.next(actions_, round);
    if (step == Binder::Step::kUnequal) return false;
    if (step == Binder::Step::kEnd) break;
    if (rounds_.empty() || !join(terms_, actions_, rounds_.back(), round)) {
      rounds_.push_back(round);
    }
  }
  for (BoundRound& each : rounds_) finish(terms_, actions_, each);
  return true;
}

}  // namespace farandole
