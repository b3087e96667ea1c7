// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/operation.hpp"

#include <cstring>
#include <utility>

#include "base/futex.hpp"

namespace farandole {

Operation::Operation(OperationSpec spec)
    : spec_(std::move(spec)), slots_(spec_.program->actions_per_round_max) {
  for (Slot& slot : slots_) {
    slot.owner = this;
    slot.send.signature = spec_.signature;
    slot.receive.signature = spec_.signature;
    slot.receive.context = &slot;
  }
}

bool Operation::step() {
  if (failing_) {
    bool clear = true;
    for (Transport* transport : spec_.group->transports) {
      if (transport != nullptr) clear &= transport->cancel(spec_.id);
    }
    if (clear) finish();
    return clear;
  }
  if (!started_) {
    if (!spec_.stream->reached(mark_)) return false;
    started_ = true;
    if (!advance()) return true;
  }
  bool moved = poll_round();
  while (!failing_ && open_count_ == 0) {
    moved = true;
    if (!advance()) break;
    poll_round();
  }
  return moved;
}

bool Operation::advance() {
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

bool Operation::takes_part(const Action& action) const {
  for (const Guard& guard : action.when) {
    const std::int64_t at = value(guard.value);
    if (at < value(guard.low) || at >= value(guard.high)) return false;
  }
  return true;
}

void Operation::open_round(const Program::Instruction& round) {
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

Operation::Place Operation::place(const Span& span) const {
  const Bytes element = size_of(spec_.dtype);
  const std::int64_t first = value(span.first);
  const std::int64_t count = value(span.count);
  if (span.buffer == Buffer::kScratch) {
    const Bytes slot = spec_.layout.chunk_elements_max() * element;
    return {spec_.scratch.get() + static_cast<std::size_t>(first) * slot.value(),
            spec_.layout.length(value(span.shape), count) * element};
  }
  // The schedule never writes `in`, so the cast only unifies the two buffers' types.
  std::byte* base = span.buffer == Buffer::kIn ? const_cast<std::byte*>(spec_.in) : spec_.out;
  return {base + (spec_.layout.offset(first) * element).value(),
          spec_.layout.length(first, count) * element};
}

void Operation::open(Slot& slot) {
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
  const auto peer = static_cast<std::size_t>(value(action.peer));
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
    slot.receive.consume = action.operand ? &Operation::consume : nullptr;
    transport.post(slot.receive);
  }
}

bool Operation::poll_round() {
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

bool Operation::close_slot(Slot& slot, const Transfer& transfer) {
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

void Operation::reduce(const Slot& slot, Bytes offset, const std::byte* incoming,
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

void Operation::consume(void* context, Bytes offset, const std::byte* data, Bytes bytes) {
  const Slot& slot = *static_cast<const Slot*>(context);
  slot.owner->reduce(slot, offset, data, bytes);
}

void Operation::fail(Error error) {
  if (failing_ || finished()) return;
  failing_ = true;
  outcome_ = std::move(error);
}

void Operation::finish() {
  spec_.stream->resume(mark_);
  if (phase_.exchange(kFinished, std::memory_order_acq_rel) == kSleptOn) futex_wake_all(phase_);
}

void Operation::sleep_until_finished(std::chrono::nanoseconds timeout) {
  std::uint32_t phase = kRunning;
  if (phase_.compare_exchange_strong(phase, kSleptOn) || phase == kSleptOn) {
    futex_wait(phase_, kSleptOn, timeout);
  }
}

std::string Operation::description() const {
  std::string text(farandole::name(spec_.program->collective));
  if (!spec_.name.empty()) text += " '" + spec_.name + "'";
  return text + " (communicator " + std::to_string(spec_.id.communicator) + ", operation " +
         std::to_string(spec_.id.sequence) + ")";
}

std::string Operation::state() const {
  std::string text = description() + " by " + spec_.program->algorithm + ": instruction " +
                     std::to_string(position_) + " of " +
                     std::to_string(spec_.program->instructions.size());
  for (std::size_t i = 0; i < slot_count_; ++i) {
    const Slot& slot = slots_[i];
    if (slot.state == Slot::State::kDone) continue;
    const bool sends = slot.action->kind == Action::Kind::kSend;
    const Transfer& transfer = sends ? static_cast<const Transfer&>(slot.send) : slot.receive;
    text += sends ? "; send to rank " : "; receive from rank ";
    text += std::to_string(transfer.peer.value()) + " " + std::to_string(transfer.moved.value()) +
            "/" + std::to_string(transfer.bytes.value()) + " bytes" +
            (slot.state == Slot::State::kHeld ? " held" : "");
  }
  return text;
}

}  // namespace farandole
