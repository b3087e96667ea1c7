// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/collective.hpp"

#include <algorithm>
#include <utility>

#include "device/cpu/copy.hpp"
#include "schedule/passes/overlap.hpp"

namespace farandole {
namespace {

// What is divided while it is in the first-level cache.
constexpr std::size_t kDividedBytes = 8 * 1024;

// What is copied between two looks at the transports, while it is in the second-level cache
// for what is sent from it.
constexpr Bytes kCopiedBytes{std::size_t{64} << 10};

std::size_t slots_of(const BoundProgram& bound) {
  return bound.is_whole() ? bound.actions().size() : bound.program().actions_per_round_max;
}

}  // namespace

FlowOf flow_of(std::shared_ptr<const Group> group) {
  return [group = std::move(group)](int rank) {
    const Capabilities& its = group->transports[static_cast<std::size_t>(rank)]->capabilities();
    return Flow{its.follows, its.follow_bytes};
  };
}

CollectiveOperation::CollectiveOperation(CollectiveSpec spec)
    : Operation(std::move(spec.terms)),
      spec_(std::move(spec)),
      whole_(spec_.bound->is_whole()),
      to_memory_(outgrows_caches(spec_.bound->terms())),
      slots_(slots_of(*spec_.bound)),
      binder_(spec_.bound->binder()) {
  set_buffers(spec_.in, spec_.out);
  const BoundTerms& terms = spec_.bound->terms();
  for (Slot& slot : slots_) {
    slot.owner = this;
    slot.send.signature = spec_.signature;
    slot.receive.signature = spec_.signature;
    slot.send.one_sends = slot.receive.one_sends = terms.collective == Collective::kBroadcast;
    slot.receive.context = &slot;
    // An allreduce in place takes its results where peers read its input.
    slot.receive.peer_has_read = terms.in_offset && terms.collective == Collective::kAllreduce;
    slot.receive.buffer_bytes = terms.out_bytes;
  }
  if (!whole_) actions_.reserve(slots_.size());
  for (const BoundRound& each : spec_.bound->rounds()) attach(spec_.bound->actions(), each);
}

std::optional<Rank> CollectiveOperation::lost_peer() const {
  for (const Slot& slot : round()) {
    if (slot.state == Slot::State::kDone || slot.transfer == nullptr) continue;
    if (slot.transfer->lost_peer()) return slot.transfer->peer;
  }
  return std::nullopt;
}

bool CollectiveOperation::done_by(Rank, const Farewell& farewell) const {
  const auto its = farewell.next_sequence.find(spec_.id.communicator);
  return its != farewell.next_sequence.end() && spec_.id.sequence < its->second;
}

void CollectiveOperation::withdraw(Farewell& words) const {
  words.withdraw_collective(spec_.id.communicator, spec_.id.sequence);
}

std::uint64_t CollectiveOperation::progress() const {
  std::uint64_t moved = entered_ * 31 + open_count_;
  for (const Slot& slot : round()) {
    moved += slot.send.moved.value() + slot.receive.moved.value();
  }
  return moved;
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
  if (enter_round()) {
    open_round();
    return true;
  }
  if (!failing_) end_well();
  return false;
}

bool CollectiveOperation::enter_round() {
  if (!whole_) return bind_round();
  const auto rounds = spec_.bound->rounds();
  if (entered_ == rounds.size()) return false;
  round_ = rounds[entered_++];
  return true;
}

/// Binds the next round of a run that is too long to be bound at once.
bool CollectiveOperation::bind_round() {
  if (entered_++ == 0) binder_.restart();
  actions_.clear();
  switch (binder_.next(actions_, round_)) {
    case Binder::Step::kRound:
      farandole::finish(spec_.bound->terms(), actions_, round_);
      attach(actions_, round_);
      return true;
    case Binder::Step::kUnequal:
      round_ = {};
      fail(Error{ErrorKind::kInternal, description() + " by " + spec_.bound->program().algorithm +
                                           " would copy between chunks of different lengths"});
      return false;
    case Binder::Step::kEnd:
      break;
  }
  round_ = {};
  return false;
}

void CollectiveOperation::attach(std::span<const BoundAction> actions, const BoundRound& round) {
  for (std::uint32_t i = round.first; i < round.first + round.count; ++i) {
    attach(slots_[i], actions[i]);
  }
}

void CollectiveOperation::attach(Slot& slot, const BoundAction& bound) {
  const auto index_of = [this](std::uint32_t index) {
    return index == BoundAction::kNone ? nullptr : &slots_[index];
  };
  slot.bound = &bound;
  slot.rides = index_of(bound.rides);
  slot.transfer = nullptr;
  if (bound.is_local()) return;
  const auto peer = static_cast<std::size_t>(bound.peer);
  slot.transport = group().transports[peer];
  slot.transfer = bound.sends() ? static_cast<Transfer*>(&slot.send) : &slot.receive;
  slot.transfer->peer = group().world_ranks[peer];
  slot.transfer->tag.lane = static_cast<std::uint32_t>(bound.action->lane);
  slot.transfer->bytes = bound.bytes;
  const Slot* const leader = index_of(bound.behind);
  const Receive* const behind = leader == nullptr ? nullptr : &leader->receive;
  slot.send.behind = behind;
  slot.send.context = index_of(bound.along);
  slot.send.along = slot.send.context == nullptr ? nullptr : &CollectiveOperation::copy_along;
  slot.receive.behind = behind;
  slot.receive.leads_sends = bound.leads_sends;
  slot.receive.consume = bound.reduces() ? &CollectiveOperation::consume : nullptr;
}

void CollectiveOperation::end_well() {
  const BoundProgram& bound = *spec_.bound;
  if (spec_.divisor > 1 && bound.program().completes.empty()) {
    divide(spec_.out, spec_.out, spec_.out_count, bound.binding().dtype, spec_.divisor);
  }
  if (const auto& [out, count, dtype, divisor] = spec_.narrowed; out != nullptr) {
    narrow(out, spec_.out, count, dtype, divisor, 1.0);
  }
  finish();
}

void CollectiveOperation::open_round() {
  open_count_ = round_.count;
  std::uint32_t at = round_.posted_first;
  while (at != BoundAction::kNone) {
    Slot& slot = slots_[at];
    at = slot.bound->next;
    slot.state = Slot::State::kHeld;
    if (!slot.bound->held) open(slot);
  }
}

void CollectiveOperation::open(Slot& slot) {
  slot.state = Slot::State::kOpen;
  if (slot.receives()) {
    slot.written = at(slot.bound->target);
    slot.operand_data = at(slot.bound->operand);
    slot.receive.tag.operation = spec_.id;
    slot.receive.target = slot.written;
    slot.transport->post(slot.receive);
  } else if (slot.transfer != nullptr) {
    slot.send.tag.operation = spec_.id;
    slot.send.source = at(slot.bound->source);
    slot.send.peer_reads = false;
    slot.transport->post(slot.send);
  } else {
    run_locally(slot);
  }
}

void CollectiveOperation::run_locally(Slot& slot) {
  const BoundAction& bound = *slot.bound;
  slot.written = at(bound.target);
  slot.operand_data = at(bound.operand);
  slot.receive.start();
  if (slot.rides != nullptr && at(bound.source) != slot.written) return;
  if (bound.reduces()) {
    reduce(slot, Bytes{0}, at(bound.source), bound.source.bytes);
  } else {
    copy(slot, bound.source.bytes);
  }
  slot.state = Slot::State::kDone;
  --open_count_;
}

void CollectiveOperation::copy(Slot& slot, Bytes bytes) const {
  const std::size_t moved = slot.receive.moved.value();
  const std::byte* source = at(slot.bound->source) + moved;
  std::byte* target = slot.written + moved;
  const auto way = to_memory_ ? &copy_to_memory : &copy_bytes;
  if (source != target) way(target, source, bytes.value());
  slot.receive.moved += bytes;
}

bool CollectiveOperation::poll_round() {
  bool changed = false;
  for (Slot& slot : round()) {
    if (failing_) break;
    if (slot.state == Slot::State::kHeld && (&slot)[-1].state == Slot::State::kDone) {
      open(slot);
      changed = true;
    }
    if (slot.state == Slot::State::kOpen) changed |= close(slot);
  }
  return changed;
}

/// Of a copy that rides a send; true if it moved itself. What the transport does not read, because
/// peers do, or has not read when it is done, is copied here.
bool CollectiveOperation::copy_further(Slot& slot) {
  const bool alone =
      to_memory_ || slot.rides->send.peer_reads || slot.rides->state == Slot::State::kDone;
  const Bytes left = slot.bound->source.bytes - slot.receive.moved;
  if (alone) copy(slot, std::min(left, kCopiedBytes));
  if (slot.receive.moved == slot.bound->source.bytes) slot.receive.finish();
  return alone;
}

bool CollectiveOperation::close(Slot& slot) {
  const bool copied = slot.rides != nullptr && copy_further(slot);
  const Transfer& transfer = slot.rides != nullptr ? slot.receive : *slot.transfer;
  if (transfer.state == TransferState::kActive) return copied;
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
  std::byte* target = slot.written + offset.value();
  const std::byte* operand = slot.operand_data + offset.value();
  const std::byte *left = operand, *right = incoming;
  if (slot.bound->action->incoming_first) std::swap(left, right);
  const std::size_t element = size_of(spec_.bound->binding().dtype).value();
  if (!divides_at(*slot.bound->action)) {
    return spec_.kernel(target, left, right, Count{bytes.value() / element});
  }
  for (std::size_t at = 0; at < bytes.value(); at += kDividedBytes) {
    const Count count{std::min(bytes.value() - at, kDividedBytes) / element};
    spec_.kernel(target + at, left + at, right + at, count);
    divide(target + at, target + at, count, spec_.bound->binding().dtype, spec_.divisor);
  }
}

/// Whether the action's result goes into the average as it is.
bool CollectiveOperation::divides_at(const Action& action) const {
  const Program& program = spec_.bound->program();
  if (spec_.divisor == 1 || program.completes.empty()) return false;
  return program.completes[static_cast<std::size_t>(&action - program.actions.data())];
}

void CollectiveOperation::consume(void* context, Bytes offset, const std::byte* data, Bytes bytes) {
  const Slot& slot = *static_cast<const Slot*>(context);
  slot.owner->reduce(slot, offset, data, bytes);
}

void CollectiveOperation::copy_along(void* context, Bytes end) {
  Slot& slot = *static_cast<Slot*>(context);
  if (slot.receive.moved < end) slot.owner->copy(slot, end - slot.receive.moved);
}

std::string CollectiveOperation::description() const {
  std::string text(farandole::name(spec_.bound->program().collective));
  if (!terms().name.empty()) text += " '" + terms().name + "'";
  return text + " (communicator " + std::to_string(spec_.id.communicator) + ", operation " +
         std::to_string(spec_.id.sequence) + ")";
}

std::string CollectiveOperation::state() const {
  std::string text = description() + " by " + spec_.bound->program().algorithm + ": instruction " +
                     std::to_string(round_.position) + " of " +
                     std::to_string(spec_.bound->program().instructions.size());
  for (const Slot& slot : round()) {
    if (slot.state == Slot::State::kDone) continue;
    if (slot.transfer != nullptr) text += describe(*slot.transfer, !slot.receives());
    if (slot.state == Slot::State::kHeld) text += " held";
  }
  return text;
}

}  // namespace farandole
