// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/collective.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace farandole {
namespace {

constexpr std::size_t kReplayedMax = 256;
// What is divided while it is in the first-level cache.
constexpr std::size_t kDividedBytes = 8 * 1024;

/// Actions in a whole run, at most kReplayedMax + 1.
std::size_t actions_in(const Program& program) {
  std::size_t count = 0;
  std::array<std::size_t, Expr::kLoopDepthMax + 1> times{1};  // by depth
  for (const Program::Instruction& instruction : program.instructions) {
    const auto depth = static_cast<std::size_t>(instruction.depth);
    if (instruction.kind == Program::Instruction::Kind::kLoopBegin) {
      const auto iterations = static_cast<std::size_t>(instruction.iterations);
      times[depth + 1] =
          std::min(times[depth] * std::min(iterations, kReplayedMax + 1), kReplayedMax + 1);
    } else if (instruction.kind == Program::Instruction::Kind::kRound) {
      count = std::min(count + times[depth] * instruction.count, kReplayedMax + 1);
    }
  }
  return count;
}

}  // namespace

CollectiveOperation::CollectiveOperation(CollectiveSpec spec)
    : Operation(std::move(spec.terms)),
      spec_(std::move(spec)),
      slots_(spec_.program->actions_per_round_max),
      resolved_(actions_in(*spec_.program)),
      replays_(resolved_.size() <= kReplayedMax),
      in_place_(spec_.program->collective == Collective::kAllreduce && spec_.in == spec_.out) {
  if (!replays_) resolved_.resize(spec_.program->actions_per_round_max);
  for (Slot& slot : slots_) {
    slot.owner = this;
    slot.send.signature = spec_.signature;
    slot.receive.signature = spec_.signature;
    slot.receive.context = &slot;
    slot.receive.buffer_bytes = spec_.out_layout.total() * size_of(spec_.dtype);
  }
}

void CollectiveOperation::renew(const void* in, void* out, std::string_view name,
                                std::uint64_t submitted) {
  Operation::renew(name, submitted);
  spec_.in = static_cast<const std::byte*>(in);
  spec_.out = static_cast<std::byte*>(out);
  position_ = 0;
  open_count_ = 0;
  slot_count_ = 0;
  next_resolved_ = 0;
}

std::optional<Rank> CollectiveOperation::lost_peer() const {
  for (std::size_t i = 0; i < slot_count_; ++i) {
    const Slot& slot = slots_[i];
    if (slot.state == Slot::State::kDone) continue;
    const bool sends = slot.action->kind == Action::Kind::kSend;
    const Transfer& transfer = sends ? static_cast<const Transfer&>(slot.send) : slot.receive;
    if (transfer.lost_peer()) return transfer.peer;
  }
  return std::nullopt;
}

bool CollectiveOperation::done_by(Rank, const Farewell& farewell) const {
  const auto its = farewell.next_sequence.find(spec_.id.communicator);
  return its != farewell.next_sequence.end() && spec_.id.sequence < its->second;
}

bool CollectiveOperation::begin() {
  if (next_round()) advance();
  return true;
}

bool CollectiveOperation::advance() {
  bool moved = poll_round();
  while (!failing_ && open_count_ == 0) {
    moved = true;
    if (!next_round()) break;
    poll_round();
  }
  return moved;
}

bool CollectiveOperation::cancel() {
  bool clear = true;
  const Transport* last = nullptr;  // peers of one transport mostly follow each other
  for (Transport* transport : group().transports) {
    if (transport == nullptr || transport == last) continue;
    clear &= transport->cancel(spec_.id);
    last = transport;
  }
  return clear;
}

bool CollectiveOperation::next_round() {
  const auto& instructions = spec_.program->instructions;
  while (position_ < instructions.size()) {
    const Program::Instruction& instruction = instructions[position_];
    const auto depth = static_cast<std::size_t>(instruction.depth);
    switch (instruction.kind) {
      case Program::Instruction::Kind::kLoopBegin:
        loops_[depth] = 0;
        position_ = instruction.iterations > 0 ? position_ + 1 : instruction.jump;
        break;
      case Program::Instruction::Kind::kLoopEnd:
        position_ = ++loops_[depth] < instruction.iterations ? instruction.jump : position_ + 1;
        break;
      case Program::Instruction::Kind::kRound:
        ++position_;
        open_round(instruction);
        if (slot_count_ > 0) return true;
        break;
    }
  }
  if (spec_.divisor > 1 && spec_.program->completes.empty()) {
    divide(spec_.out, spec_.out, spec_.out_count, spec_.dtype, spec_.divisor);
  }
  finish();
  return false;
}

bool CollectiveOperation::takes_part(const Action& action) const {
  for (const Guard& guard : action.when) {
    const std::int64_t at = value(guard.value);
    if (at < value(guard.low) || at >= value(guard.high)) return false;
  }
  return true;
}

void CollectiveOperation::open_round(const Program::Instruction& round) {
  slot_count_ = 0;
  open_count_ = 0;
  if (!replays_) next_resolved_ = resolved_count_ = 0;
  for (std::uint32_t i = round.first; i < round.first + round.count; ++i) {
    const Action& action = spec_.program->actions[i];
    const Resolved& resolved = resolve(action);
    if (!resolved.takes_part) continue;
    Slot& slot = slots_[slot_count_++];
    slot.action = &action;
    slot.resolved = &resolved;
    slot.state = Slot::State::kHeld;
    ++open_count_;
  }
  // Receives first: a message that finds its receive posted needs not be set aside.
  for (const bool receives : {true, false}) {
    for (std::size_t i = 0; i < slot_count_; ++i) {
      const Action& action = *slots_[i].action;
      if ((action.kind == Action::Kind::kReceive) != receives) continue;
      slots_[i].receive.behind = nullptr;
      if (!action.after_previous || i == 0) {
        open(slots_[i]);
      } else if (receives && follows(i)) {
        slots_[i].receive.behind = &slots_[i - 1].receive;
        open(slots_[i]);
      }
    }
  }
}

/// Whether two receives that reduce into one place may take turns, piece by piece.
bool CollectiveOperation::follows(std::size_t i) const {
  const Slot &before = slots_[i - 1], &slot = slots_[i];
  const Action &first = *before.action, &second = *slot.action;
  if (before.state == Slot::State::kHeld || first.kind != Action::Kind::kReceive) return false;
  if (!second.operand || second.operand != second.target || second.target != first.target) {
    return false;
  }
  return std::ranges::all_of(std::array{&before, &slot}, [&](const Slot* receives) {
    const Resolved& resolved = *receives->resolved;
    const Capabilities& capabilities = group().transports[resolved.peer]->capabilities();
    return capabilities.follows && resolved.target.bytes > capabilities.follow_bytes;
  });
}

const CollectiveOperation::Resolved& CollectiveOperation::resolve(const Action& action) {
  const std::size_t index = next_resolved_++;
  if (index == resolved_count_) resolved_[resolved_count_++] = resolved(action);
  return resolved_[index];
}

CollectiveOperation::Resolved CollectiveOperation::resolved(const Action& action) const {
  Resolved resolved;
  resolved.takes_part = takes_part(action);
  if (!resolved.takes_part) return resolved;
  if (action.kind != Action::Kind::kLocal) {
    resolved.peer = static_cast<std::size_t>(spec_.program->rank_at(value(action.peer)));
  }
  if (action.source) resolved.source = place(*action.source);
  if (action.target) resolved.target = place(*action.target);
  if (action.operand) resolved.operand = place(*action.operand);
  return resolved;
}

CollectiveOperation::Place CollectiveOperation::place(const Span& span) const {
  const Bytes element = size_of(spec_.dtype);
  const std::int64_t first = value(span.first);
  const std::int64_t count = value(span.count);
  if (span.buffer == Buffer::kScratch) {
    const Bytes slot = spec_.chunks.chunk_elements_max() * element;
    return {span.buffer, static_cast<std::size_t>(first) * slot.value(),
            spec_.chunks.length(value(span.shape), count) * element};
  }
  const Layout& layout = span.buffer == Buffer::kIn ? spec_.in_layout : spec_.out_layout;
  return {span.buffer, (layout.offset(first) * element).value(),
          layout.length(first, count) * element};
}

std::byte* CollectiveOperation::at(const Place& place) const {
  switch (place.buffer) {
    case Buffer::kIn:
      // The schedule never writes `in`, so the cast only unifies the buffers' types.
      return const_cast<std::byte*>(spec_.in) + place.offset;
    case Buffer::kOut:
      return spec_.out + place.offset;
    case Buffer::kScratch:
      break;
  }
  return spec_.scratch.get() + place.offset;
}

void CollectiveOperation::open(Slot& slot) {
  const Action& action = *slot.action;
  const Resolved& resolved = *slot.resolved;
  slot.target = at(resolved.target);
  slot.operand = at(resolved.operand);
  slot.state = Slot::State::kOpen;
  const Place& source = resolved.source;
  if (action.kind == Action::Kind::kLocal) {
    if (action.operand) {
      reduce(slot, Bytes{0}, at(source), source.bytes);
    } else if (slot.target != at(source) && source.bytes.value() > 0) {
      std::memmove(slot.target, at(source), source.bytes.value());
    }
    slot.state = Slot::State::kDone;
    --open_count_;
    return;
  }
  Transport& transport = *group().transports[resolved.peer];
  const bool sends = action.kind == Action::Kind::kSend;
  Transfer& transfer = sends ? static_cast<Transfer&>(slot.send) : slot.receive;
  transfer.peer = group().world_ranks[resolved.peer];
  transfer.tag = {spec_.id, static_cast<std::uint32_t>(action.lane)};
  transfer.bytes = sends ? source.bytes : resolved.target.bytes;
  if (sends) {
    slot.send.source = at(source);
    transport.post(slot.send);
  } else {
    slot.receive.target = slot.target;
    slot.receive.peer_has_read = in_place_;
    slot.receive.consume = action.operand ? &CollectiveOperation::consume : nullptr;
    transport.post(slot.receive);
  }
}

bool CollectiveOperation::poll_round() {
  bool changed = false;
  for (std::size_t i = 0; i < slot_count_ && !failing_; ++i) {
    Slot& slot = slots_[i];
    if (slot.state == Slot::State::kHeld && slots_[i - 1].state == Slot::State::kDone) {
      open(slot);
      changed = true;
    }
    if (slot.state != Slot::State::kOpen) continue;
    const bool sends = slot.action->kind == Action::Kind::kSend;
    changed |= close_slot(slot, sends ? static_cast<Transfer&>(slot.send) : slot.receive);
  }
  return changed;
}

bool CollectiveOperation::close_slot(Slot& slot, const Transfer& transfer) {
  if (transfer.state == TransferState::kActive) return false;
  if (transfer.state == TransferState::kDone) {
    slot.state = Slot::State::kDone;
    --open_count_;
    return true;
  }
  // The engine knows better who is gone and tells it through fail(); a transfer that fails first
  // waits for that. A disagreement is known here alone.
  if (transfer.error != ErrorKind::kMismatch) return false;
  disagreement_ = &transfer;
  return true;
}

void CollectiveOperation::reduce(const Slot& slot, Bytes offset, const std::byte* incoming,
                                 Bytes bytes) const {
  std::byte* target = slot.target + offset.value();
  const std::byte* operand = slot.operand + offset.value();
  const std::byte *left = operand, *right = incoming;
  if (slot.action->incoming_first) std::swap(left, right);
  const std::size_t element = size_of(spec_.dtype).value();
  if (!divides_at(*slot.action)) {
    return spec_.kernel(target, left, right, Count{bytes.value() / element});
  }
  for (std::size_t at = 0; at < bytes.value(); at += kDividedBytes) {
    const Count count{std::min(bytes.value() - at, kDividedBytes) / element};
    spec_.kernel(target + at, left + at, right + at, count);
    divide(target + at, target + at, count, spec_.dtype, spec_.divisor);
  }
}

/// Whether the action's result goes into the average as it is.
bool CollectiveOperation::divides_at(const Action& action) const {
  const Program& program = *spec_.program;
  if (spec_.divisor == 1 || program.completes.empty()) return false;
  return program.completes[static_cast<std::size_t>(&action - program.actions.data())];
}

void CollectiveOperation::consume(void* context, Bytes offset, const std::byte* data, Bytes bytes) {
  const Slot& slot = *static_cast<const Slot*>(context);
  slot.owner->reduce(slot, offset, data, bytes);
}

std::string CollectiveOperation::description() const {
  std::string text(farandole::name(spec_.program->collective));
  if (!terms().name.empty()) text += " '" + terms().name + "'";
  return text + " (communicator " + std::to_string(spec_.id.communicator) + ", operation " +
         std::to_string(spec_.id.sequence) + ")";
}

std::string CollectiveOperation::state() const {
  std::string text = description() + " by " + spec_.program->algorithm + ": instruction " +
                     std::to_string(position_) + " of " +
                     std::to_string(spec_.program->instructions.size());
  for (std::size_t i = 0; i < slot_count_; ++i) {
    const Slot& slot = slots_[i];
    if (slot.state == Slot::State::kDone) continue;
    const bool sends = slot.action->kind == Action::Kind::kSend;
    const Transfer& transfer = sends ? static_cast<const Transfer&>(slot.send) : slot.receive;
    text += describe(transfer, sends) + (slot.state == Slot::State::kHeld ? " held" : "");
  }
  return text;
}

}  // namespace farandole
