// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/program.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <set>

namespace farandole {
namespace {

using Instruction = Program::Instruction;

// Walks a schedule once to emit instructions, and once per iteration to collect peers.
class Specializer {
 public:
  Specializer(Program& program, const Proof& proof) : program_(program), proof_(proof) {}

  void emit(const std::vector<Item>& items, int depth) {
    for (const Item& item : items) {
      if (const auto* round = std::get_if<Round>(&item)) {
        emit(*round, depth);
      } else {
        emit(*std::get<std::shared_ptr<const Loop>>(item), depth);
      }
    }
  }

  void collect_peers() {
    run(0, static_cast<std::uint32_t>(program_.instructions.size()));
    peers_.erase(program_.rank);
    program_.peers.assign(peers_.begin(), peers_.end());
  }

 private:
  void emit(const Loop& loop, int depth) {
    if (loop.count <= 0) return;
    const auto begin = static_cast<std::uint32_t>(program_.instructions.size());
    program_.instructions.push_back({Instruction::Kind::kLoopBegin, 0, 0, loop.count, 0, depth});
    emit(loop.body, depth + 1);
    const auto end = static_cast<std::uint32_t>(program_.instructions.size());
    if (end == begin + 1) {
      program_.instructions.pop_back();
      return;
    }
    program_.instructions[begin].jump = end + 1;
    program_.instructions.push_back(
        {Instruction::Kind::kLoopEnd, 0, 0, loop.count, begin + 1, depth});
  }

  void emit(const Round& round, int depth) {
    const auto first = static_cast<std::uint32_t>(program_.actions.size());
    bool chain_open = false;  // an action of the current chain may take part
    for (const Action& action : round.actions) {
      chain_open = chain_open && action.after_previous;
      Action mine = action;
      if (!resolve(mine.when)) continue;
      mine.peer = mine.peer.specialize(program_.position);
      for (auto* span : {&mine.source, &mine.target, &mine.operand}) resolve(*span);
      mine.after_previous = chain_open;
      chain_open = true;
      program_.actions.push_back(std::move(mine));
      if (proof_.completing.empty()) continue;
      program_.completes.push_back(proof_.completing.contains(&action));
    }
    const auto count = static_cast<std::uint32_t>(program_.actions.size()) - first;
    if (count == 0) return;
    program_.actions_per_round_max = std::max(program_.actions_per_round_max, count);
    program_.instructions.push_back({Instruction::Kind::kRound, first, count, 1, 0, depth});
  }

  void resolve(std::optional<Span>& span) const {
    if (!span) return;
    span->first = span->first.specialize(program_.position);
    span->count = span->count.specialize(program_.position);
    span->shape = span->shape.specialize(program_.position);
  }

  // Keeps the guards that change with a loop; false when one of the others fails.
  bool resolve(std::vector<Guard>& guards) const {
    std::vector<Guard> open;
    for (const Guard& guard : guards) {
      const Guard mine{guard.value.specialize(program_.position),
                       guard.low.specialize(program_.position),
                       guard.high.specialize(program_.position)};
      if (!mine.value.is_constant() || !mine.low.is_constant() || !mine.high.is_constant()) {
        open.push_back(mine);
      } else if (!holds(mine)) {
        return false;
      }
    }
    guards = std::move(open);
    return true;
  }

  void run(std::uint32_t first, std::uint32_t last) {
    for (std::uint32_t i = first; i < last; ++i) {
      const Instruction& at = program_.instructions[i];
      if (at.kind == Instruction::Kind::kRound) {
        collect_peers(at);
      } else if (at.kind == Instruction::Kind::kLoopBegin) {
        std::int64_t& counter = loops_[static_cast<std::size_t>(at.depth)];
        for (counter = 0; counter < at.iterations; ++counter) run(i + 1, at.jump - 1);
        i = at.jump - 1;
      }
    }
  }

  void collect_peers(const Instruction& round) {
    for (std::uint32_t i = round.first; i < round.first + round.count; ++i) {
      const Action& action = program_.actions[i];
      if (action.kind == Action::Kind::kLocal) continue;
      if (std::all_of(action.when.begin(), action.when.end(),
                      [this](const Guard& guard) { return holds(guard); })) {
        peers_.insert(program_.rank_at(action.peer.evaluate(program_.position, loops_)));
      }
    }
  }

  bool holds(const Guard& guard) const {
    const std::int64_t value = guard.value.evaluate(program_.position, loops_);
    return guard.low.evaluate(program_.position, loops_) <= value &&
           value < guard.high.evaluate(program_.position, loops_);
  }

  Program& program_;
  const Proof& proof_;
  std::array<std::int64_t, Expr::kLoopDepthMax> loops_{};
  std::set<std::int64_t> peers_;
};

}  // namespace

Program specialize(const VerifiedSchedule& verified, std::int64_t rank) {
  const Schedule& schedule = verified.schedule();
  assert(rank >= 0 && rank < schedule.rank_count);
  Program program;
  program.collective = schedule.collective;
  program.algorithm = schedule.algorithm;
  program.rank = rank;
  program.order = schedule.order;
  const auto seat = std::find(program.order.begin(), program.order.end(), rank);
  program.position = program.order.empty() ? rank : seat - program.order.begin();
  program.rank_count = schedule.rank_count;
  program.root = schedule.root;
  program.chunk_count = schedule.chunk_count;
  program.scratch_slots = schedule.scratch_slots;
  program.lane_count = schedule.lane_count;
  Specializer specializer(program, verified.proof());
  specializer.emit(schedule.items, 0);
  specializer.collect_peers();
  return program;
}

}  // namespace farandole
