// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/collective.hpp"

#include <algorithm>
#include <utility>

#include "schedule/passes/overlap.hpp"

namespace farandole {
namespace {

// What is copied between two looks at the transports, while it is in the second-level cache
// for what is sent from it.
constexpr Bytes kCopiedBytes{std::size_t{64} << 10};

// Elements that are worked on between two looks at the transports, before and after the rounds.
constexpr Count kPiece{std::size_t{16} << 10};

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
  for (const BoundRound& each : spec_.bound->rounds()) {
    attach(spec_.bound->actions(), each);
    make_room_for_arrivals(each);
  }
}

std::optional<Rank> CollectiveOperation::lost_peer() const {
  for (const Slot& slot : round()) {
    if (slot.state == Slot::State::kDone || slot.transfer == nullptr) continue;
    if (slot.transfer->lost_peer()) return slot.transfer->peer;
  }
  return std::nullopt;
}

bool CollectiveOperation::done_by(Rank, const Farewell& farewell) const {
  return farewell.has_done(spec_.id.communicator, spec_.id.sequence);
}

void CollectiveOperation::withdraw(Farewell& words) const {
  words.withdraw_collective(spec_.id.communicator, spec_.id.sequence);
}

std::uint64_t CollectiveOperation::progress() const {
  std::uint64_t moved = entered_ * 31 + open_count_ + worked_.value();
  for (const Slot& slot : round()) {
    moved += slot.send.moved.value() + slot.receive.moved.value();
  }
  return moved;
}

bool CollectiveOperation::advance() {
  bool moved = false;
  if (phase_ == Phase::kBefore) {
    if (spec_.before && !work_on(*spec_.before, moved)) return moved;
    moved = true;
    phase_ = next_round() ? Phase::kRounds : Phase::kAfter;
  }
  if (phase_ == Phase::kRounds) {
    moved |= poll_round();
    while (!failing_ && open_count_ == 0) {
      moved = true;
      if (!next_round()) {
        phase_ = Phase::kAfter;
        break;
      }
      poll_round();
    }
  }
  if (phase_ != Phase::kAfter || failing_) return moved;
  if (const auto work = last_work(); !work || work_on(*work, moved)) {
    finish();
    moved = true;
  }
  return moved;
}

/// An average whose sums are complete only now is divided, one of integers made narrow.
std::optional<LocalWork> CollectiveOperation::last_work() const {
  if (spec_.after || spec_.divisor == 1 || !spec_.bound->program().completes.empty()) {
    return spec_.after;
  }
  return LocalWork{.kind = LocalWork::Kind::kDivide,
                   .dtype = spec_.bound->binding().dtype,
                   .target = spec_.out,
                   .left = spec_.out,
                   .count = spec_.out_count,
                   .divisor = spec_.divisor};
}

/// Goes on with work on a whole buffer; true once it is done.
bool CollectiveOperation::work_on(const LocalWork& work, bool& moved) {
  Device& device = *spec_.device;
  if (work_ != Device::kDone && !device.is_done(work_)) return false;
  work_ = Device::kDone;
  if (worked_ < work.count) {
    const Count left = work.count - worked_;
    const Count now = device.works_at_once() ? std::min(left, kPiece) : left;
    work_ = device.start(piece(work, worked_, now));
    worked_ += now;
    moved = true;
    if (work_ != Device::kDone || worked_ < work.count) return false;
  }
  worked_ = Count{0};
  return true;
}

/// Whether no work of the device is left that touches the operation's memory.
bool CollectiveOperation::device_is_clear() {
  Device& device = *spec_.device;
  if (work_ != Device::kDone && device.is_done(work_)) work_ = Device::kDone;
  bool clear = work_ == Device::kDone;
  for (Slot& slot : round()) {
    if (slot.state != Slot::State::kWorking) continue;
    if (device.is_done(slot.work)) {
      slot.state = Slot::State::kDone;
    } else {
      clear = false;
    }
  }
  return clear;
}

bool CollectiveOperation::cancel() {
  bool clear = device_is_clear();
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
      make_room_for_arrivals(round_);
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
  const bool consumes = bound.reduces() && spec_.device->works_at_once();
  slot.receive.consume = consumes ? &CollectiveOperation::consume : nullptr;
}

void CollectiveOperation::make_room_for_arrivals(const BoundRound& round) {
  if (spec_.device->works_at_once()) return;
  std::size_t bytes = 0;
  for (const Slot& slot : std::span(slots_).subspan(round.first, round.count)) {
    if (slot.receives() && slot.bound->reduces()) bytes += slot.bound->bytes.value();
  }
  if (arrivals_.size() < bytes) arrivals_.resize(bytes);
}

void CollectiveOperation::open_round() {
  std::byte* arrival = arrivals_.data();
  for (Slot& slot : round()) {
    if (spec_.device->works_at_once()) break;
    if (!slot.receives() || !slot.bound->reduces()) continue;
    slot.arrival = arrival;
    arrival += slot.bound->bytes.value();
  }
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
    slot.receive.target = slot.arrival != nullptr ? slot.arrival : slot.written;
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
  start(slot, bound.reduces() ? reduction(slot, Bytes{0}, at(bound.source), bound.source.bytes)
                              : copying(slot, Bytes{0}, bound.source.bytes));
}

void CollectiveOperation::start(Slot& slot, const LocalWork& work) {
  slot.work = spec_.device->start(work);
  if (slot.work != Device::kDone) {
    slot.state = Slot::State::kWorking;
    return;
  }
  slot.state = Slot::State::kDone;
  --open_count_;
}

LocalWork CollectiveOperation::copying(const Slot& slot, Bytes offset, Bytes bytes) const {
  const DType dtype = spec_.bound->binding().dtype;
  return {.kind = LocalWork::Kind::kCopy,
          .to_memory = to_memory_,
          .dtype = dtype,
          .target = slot.written + offset.value(),
          .left = at(slot.bound->source) + offset.value(),
          .count = Count{bytes.value() / size_of(dtype).value()}};
}

/// A copy that rides a send, which only devices do that work at once.
void CollectiveOperation::copy(Slot& slot, Bytes bytes) const {
  spec_.device->start(copying(slot, slot.receive.moved, bytes));
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
    if (slot.state == Slot::State::kWorking && spec_.device->is_done(slot.work)) {
      slot.state = Slot::State::kDone;
      --open_count_;
      changed = true;
    }
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
  if (transfer.state == TransferState::kDone && slot.arrival != nullptr) {
    start(slot, reduction(slot, Bytes{0}, slot.arrival, slot.bound->bytes));
    return true;
  }
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

LocalWork CollectiveOperation::reduction(const Slot& slot, Bytes offset, const std::byte* incoming,
                                         Bytes bytes) const {
  const DType dtype = spec_.bound->binding().dtype;
  const std::byte *left = slot.operand_data + offset.value(), *right = incoming;
  if (slot.bound->action->incoming_first) std::swap(left, right);
  return {.kind = LocalWork::Kind::kReduce,
          .dtype = dtype,
          .target = slot.written + offset.value(),
          .left = left,
          .right = right,
          .count = Count{bytes.value() / size_of(dtype).value()},
          .kernel = spec_.kernel,
          .divisor = divides_at(*slot.bound->action) ? spec_.divisor : 1};
}

/// Whether the action's result goes into the average as it is.
bool CollectiveOperation::divides_at(const Action& action) const {
  const Program& program = spec_.bound->program();
  if (spec_.divisor == 1 || program.completes.empty()) return false;
  return program.completes[static_cast<std::size_t>(&action - program.actions.data())];
}

void CollectiveOperation::consume(void* context, Bytes offset, const std::byte* data, Bytes bytes) {
  const Slot& slot = *static_cast<const Slot*>(context);
  const CollectiveOperation& owner = *slot.owner;
  owner.spec_.device->start(owner.reduction(slot, offset, data, bytes));
}

void CollectiveOperation::copy_along(void* context, Bytes end) {
  Slot& slot = *static_cast<Slot*>(context);
  if (slot.receive.moved < end) slot.owner->copy(slot, end - slot.receive.moved);
}

std::string CollectiveOperation::description() const {
  return describe(spec_.bound->program().collective, spec_.id);
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
