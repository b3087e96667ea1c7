// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/collective.hpp"

#include <cstring>
#include <utility>

namespace farandole {

CollectiveOperation::CollectiveOperation(CollectiveSpec spec)
    : Operation(spec), spec_(std::move(spec)), slots_(spec_.program->actions_per_round_max) {
  for (Slot& slot : slots_) {
    slot.owner = this;
    slot.send.signature = spec_.signature;
    slot.receive.signature = spec_.signature;
    slot.receive.context = &slot;
  }
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
  for (Transport* transport : spec_.group->transports) {
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
  if (spec_.divisor > 1) {
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
  for (std::uint32_t i = round.first; i < round.first + round.count; ++i) {
    const Action& action = spec_.program->actions[i];
    if (!takes_part(action)) continue;
    Slot& slot = slots_[slot_count_++];
    slot.action = &action;
    slot.state = Slot::State::kHeld;
    ++open_count_;
  }
  // Receives first: a message that finds its receive posted needs not be set aside.
  for (const bool receives : {true, false}) {
    for (std::size_t i = 0; i < slot_count_; ++i) {
      const Action& action = *slots_[i].action;
      if ((action.kind == Action::Kind::kReceive) != receives) continue;
      if (!action.after_previous || i == 0) open(slots_[i]);
    }
  }
}

CollectiveOperation::Place CollectiveOperation::place(const Span& span) const {
  const Bytes element = size_of(spec_.dtype);
  const std::int64_t first = value(span.first);
  const std::int64_t count = value(span.count);
  if (span.buffer == Buffer::kScratch) {
    const Bytes slot = spec_.chunks.chunk_elements_max() * element;
    return {spec_.scratch.get() + static_cast<std::size_t>(first) * slot.value(),
            spec_.chunks.length(value(span.shape), count) * element};
  }
  // The schedule never writes `in`, so the cast only unifies the two buffers' types.
  const bool is_in = span.buffer == Buffer::kIn;
  std::byte* base = is_in ? const_cast<std::byte*>(spec_.in) : spec_.out;
  const Layout& layout = is_in ? spec_.in_layout : spec_.out_layout;
  return {base + (layout.offset(first) * element).value(), layout.length(first, count) * element};
}

void CollectiveOperation::open(Slot& slot) {
  const Action& action = *slot.action;
  const Place target = action.target ? place(*action.target) : Place{};
  const Place source = action.source ? place(*action.source) : Place{};
  slot.target = target.data;
  slot.operand = action.operand ? place(*action.operand).data : nullptr;
  slot.state = Slot::State::kOpen;
  if (action.kind == Action::Kind::kLocal) {
    if (action.operand) {
      reduce(slot, Bytes{0}, source.data, source.bytes);
    } else if (target.data != source.data && source.bytes.value() > 0) {
      std::memmove(target.data, source.data, source.bytes.value());
    }
    slot.state = Slot::State::kDone;
    --open_count_;
    return;
  }
  const auto peer = static_cast<std::size_t>(spec_.program->rank_at(value(action.peer)));
  Transport& transport = *spec_.group->transports[peer];
  const bool sends = action.kind == Action::Kind::kSend;
  Transfer& transfer = sends ? static_cast<Transfer&>(slot.send) : slot.receive;
  transfer.peer = spec_.group->world_ranks[peer];
  transfer.tag = {spec_.id, static_cast<std::uint32_t>(action.lane)};
  transfer.bytes = sends ? source.bytes : target.bytes;
  if (sends) {
    slot.send.source = source.data;
    transport.post(slot.send);
  } else {
    slot.receive.target = target.data;
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
  const Count count{bytes.value() / size_of(spec_.dtype).value()};
  if (slot.action->incoming_first) {
    spec_.kernel(target, incoming, operand, count);
  } else {
    spec_.kernel(target, operand, incoming, count);
  }
}

void CollectiveOperation::consume(void* context, Bytes offset, const std::byte* data, Bytes bytes) {
  const Slot& slot = *static_cast<const Slot*>(context);
  slot.owner->reduce(slot, offset, data, bytes);
}

std::string CollectiveOperation::description() const {
  std::string text(farandole::name(spec_.program->collective));
  if (!spec_.name.empty()) text += " '" + spec_.name + "'";
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
