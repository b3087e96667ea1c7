// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/collective.hpp"

#include <algorithm>
#include <utility>

#include "schedule/passes/overlap.hpp"

namespace farandole {
namespace {

// Bytes copied between two polls of the transports. Few enough that the send of the same source
// finds them in the second-level cache.
constexpr Bytes kCopiedBytes{std::size_t{64} << 10};

// Elements worked on between two polls of the transports, before and after the rounds.
constexpr Count kPiece{std::size_t{16} << 10};

std::size_t live_actions_of(const BoundProgram& bound) {
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
      works_at_once_(spec_.device->works_at_once()),
      live_(live_actions_of(*spec_.bound)),
      binder_(spec_.bound->binder()) {
  set_buffers(spec_.in, spec_.out);
  const BoundTerms& terms = spec_.bound->terms();
  for (LiveAction& live : live_) {
    live.owner = this;
    live.send.signature = spec_.signature;
    live.receive.signature = spec_.signature;
    live.send.one_sends = live.receive.one_sends = terms.collective == Collective::kBroadcast;
    live.receive.context = &live;
    live.receive.buffer_bytes = terms.out_bytes;
  }
  if (!whole_) actions_.reserve(live_.size());
  for (const BoundRound& each : spec_.bound->rounds()) {
    attach(spec_.bound->actions(), each);
    make_room_for_arrivals(each);
  }
}

std::optional<Rank> CollectiveOperation::lost_peer() const {
  for (const LiveAction& live : round()) {
    if (live.state == LiveAction::State::kDone || live.transfer == nullptr) continue;
    if (live.transfer->lost_peer()) return live.transfer->peer;
  }
  return std::nullopt;
}

bool CollectiveOperation::done_by(Rank, const FinalState& final_state) const {
  return final_state.has_done(spec_.id.communicator, spec_.id.sequence);
}

void CollectiveOperation::withdraw(FinalState& words) const {
  words.withdraw_collective(spec_.id.communicator, spec_.id.sequence);
}

std::uint64_t CollectiveOperation::progress() const {
  std::uint64_t moved = entered_ * 31 + open_count_ + worked_.value();
  for (const LiveAction& live : round()) {
    moved += live.send.moved.value() + live.receive.moved.value();
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

/// The work after the last round: divides an average whose sums are complete only then, or narrows
/// an average of integers.
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

/// Continues work on a whole buffer; true once it is done.
bool CollectiveOperation::work_on(const LocalWork& work, bool& moved) {
  Device& device = *spec_.device;
  if (work_ != Device::kDone && !device.is_done(work_)) return false;
  work_ = Device::kDone;
  if (worked_ < work.count) {
    const Count left = work.count - worked_;
    const Count now = works_at_once_ ? std::min(left, kPiece) : left;
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
  for (LiveAction& live : round()) {
    if (live.state != LiveAction::State::kWorking) continue;
    if (device.is_done(live.work)) {
      live.state = LiveAction::State::kDone;
    } else {
      clear = false;
    }
  }
  return clear;
}

bool CollectiveOperation::cancel() {
  bool clear = device_is_clear();
  const Transport* last = nullptr;  // peers of one transport are mostly adjacent
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
    attach(live_[i], actions[i]);
  }
}

void CollectiveOperation::attach(LiveAction& live, const BoundAction& bound) {
  const auto index_of = [this](std::uint32_t index) {
    return index == BoundAction::kNone ? nullptr : &live_[index];
  };
  live.bound = &bound;
  live.rides = index_of(bound.rides);
  live.transfer = nullptr;
  if (bound.is_local()) return;
  const auto peer = static_cast<std::size_t>(bound.peer);
  live.transport = group().transports[peer];
  live.transfer = bound.sends() ? static_cast<Transfer*>(&live.send) : &live.receive;
  live.transfer->peer = group().world_ranks[peer];
  live.transfer->tag.lane = static_cast<std::uint32_t>(bound.action->lane);
  live.transfer->bytes = bound.bytes;
  const LiveAction* const leader = index_of(bound.behind);
  const Receive* const behind = leader == nullptr ? nullptr : &leader->receive;
  live.send.behind = behind;
  live.send.context = index_of(bound.along);
  live.send.along = live.send.context == nullptr ? nullptr : &CollectiveOperation::copy_along;
  live.receive.behind = behind;
  const bool consumes = bound.reduces() && works_at_once_;
  live.receive.consume = consumes ? &CollectiveOperation::consume : nullptr;
  // Sums arrive in the output, and in place that is where peers have read the input.
  const BoundTerms& terms = spec_.bound->terms();
  live.receive.peer_has_made =
      terms.collective == Collective::kAllreduce && bound.target.buffer == Buffer::kOut;
  live.receive.peer_has_read = terms.in_offset && live.receive.peer_has_made;
}

void CollectiveOperation::make_room_for_arrivals(const BoundRound& round) {
  if (works_at_once_) return;
  std::size_t bytes = 0;
  for (const LiveAction& live : std::span(live_).subspan(round.first, round.count)) {
    if (live.receives() && live.bound->reduces()) bytes += live.bound->bytes.value();
  }
  if (arrivals_.size() < bytes) arrivals_.resize(bytes);
}

void CollectiveOperation::open_round() {
  std::byte* arrival = arrivals_.data();
  for (LiveAction& live : round()) {
    if (works_at_once_) break;
    if (!live.receives() || !live.bound->reduces()) continue;
    live.arrival = arrival;
    arrival += live.bound->bytes.value();
  }
  open_count_ = round_.count;
  std::uint32_t at = round_.posted_first;
  while (at != BoundAction::kNone) {
    LiveAction& live = live_[at];
    at = live.bound->next;
    live.state = LiveAction::State::kHeld;
    if (!live.bound->held) open(live);
  }
}

void CollectiveOperation::open(LiveAction& live) {
  live.state = LiveAction::State::kOpen;
  if (live.receives()) {
    live.written = at(live.bound->target);
    live.operand_data = at(live.bound->operand);
    live.receive.tag.operation = spec_.id;
    live.receive.target = live.arrival != nullptr ? live.arrival : live.written;
    live.transport->post(live.receive);
  } else if (live.transfer != nullptr) {
    live.send.tag.operation = spec_.id;
    live.send.source = at(live.bound->source);
    live.send.peer_reads = false;
    live.transport->post(live.send);
  } else {
    run_locally(live);
  }
}

void CollectiveOperation::run_locally(LiveAction& live) {
  const BoundAction& bound = *live.bound;
  live.written = at(bound.target);
  live.operand_data = at(bound.operand);
  live.receive.start();
  if (live.rides != nullptr && at(bound.source) != live.written) return;
  start(live, bound.reduces() ? reduction(live, Bytes{0}, at(bound.source), bound.source.bytes)
                              : copying(live, Bytes{0}, bound.source.bytes));
}

void CollectiveOperation::start(LiveAction& live, const LocalWork& work) {
  live.work = spec_.device->start(work);
  if (live.work != Device::kDone) {
    live.state = LiveAction::State::kWorking;
    return;
  }
  live.state = LiveAction::State::kDone;
  --open_count_;
}

LocalWork CollectiveOperation::copying(const LiveAction& live, Bytes offset, Bytes bytes) const {
  const DType dtype = spec_.bound->binding().dtype;
  return {.kind = LocalWork::Kind::kCopy,
          .to_memory = to_memory_,
          .dtype = dtype,
          .target = live.written + offset.value(),
          .left = at(live.bound->source) + offset.value(),
          .count = Count{bytes.value() / size_of(dtype).value()}};
}

/// Copies the next bytes of a copy that rides a send. Only devices that work at once have such
/// copies.
void CollectiveOperation::copy(LiveAction& live, Bytes bytes) const {
  spec_.device->start(copying(live, live.receive.moved, bytes));
  live.receive.moved += bytes;
}

bool CollectiveOperation::poll_round() {
  bool changed = false;
  for (LiveAction& live : round()) {
    if (failing_) break;
    if (live.state == LiveAction::State::kHeld && (&live)[-1].state == LiveAction::State::kDone) {
      open(live);
      changed = true;
    }
    if (live.state == LiveAction::State::kOpen) changed |= close(live);
    if (live.state == LiveAction::State::kWorking && spec_.device->is_done(live.work)) {
      live.state = LiveAction::State::kDone;
      --open_count_;
      changed = true;
    }
  }
  return changed;
}

/// For a copy that rides a send; true if it copied bytes here. It does so when the transport does
/// not read the source, since the peers do, and for what the transport has not read by the end of
/// the send.
bool CollectiveOperation::copy_further(LiveAction& live) {
  const bool alone =
      to_memory_ || live.rides->send.peer_reads || live.rides->state == LiveAction::State::kDone;
  const Bytes left = live.bound->source.bytes - live.receive.moved;
  if (alone) copy(live, std::min(left, kCopiedBytes));
  if (live.receive.moved == live.bound->source.bytes) live.receive.finish();
  return alone;
}

bool CollectiveOperation::close(LiveAction& live) {
  const bool copied = live.rides != nullptr && copy_further(live);
  const Transfer& transfer = live.rides != nullptr ? live.receive : *live.transfer;
  if (transfer.state == TransferState::kActive) return copied;
  if (transfer.state == TransferState::kDone && live.arrival != nullptr) {
    start(live, reduction(live, Bytes{0}, live.arrival, live.bound->bytes));
    return true;
  }
  if (transfer.state == TransferState::kDone) {
    live.state = LiveAction::State::kDone;
    --open_count_;
    return true;
  }
  // The engine knows which rank is gone and reports it through fail(), so a transfer that fails
  // first waits for that. A disagreement is known only here.
  if (transfer.error != ErrorKind::kMismatch) return false;
  disagreement_ = &transfer;
  return true;
}

LocalWork CollectiveOperation::reduction(const LiveAction& live, Bytes offset,
                                         const std::byte* incoming, Bytes bytes) const {
  const DType dtype = spec_.bound->binding().dtype;
  const std::byte *left = live.operand_data + offset.value(), *right = incoming;
  if (live.bound->action->incoming_first) std::swap(left, right);
  return {.kind = LocalWork::Kind::kReduce,
          .dtype = dtype,
          .target = live.written + offset.value(),
          .left = left,
          .right = right,
          .count = Count{bytes.value() / size_of(dtype).value()},
          .kernel = spec_.kernel,
          .divisor = divides_at(*live.bound->action) ? spec_.divisor : 1};
}

/// Whether the result of this action is a complete sum, which is then divided for the average.
bool CollectiveOperation::divides_at(const Action& action) const {
  const Program& program = spec_.bound->program();
  if (spec_.divisor == 1 || program.completes.empty()) return false;
  return program.completes[static_cast<std::size_t>(&action - program.actions.data())];
}

void CollectiveOperation::consume(void* context, Bytes offset, const std::byte* data, Bytes bytes) {
  const LiveAction& live = *static_cast<const LiveAction*>(context);
  const CollectiveOperation& owner = *live.owner;
  owner.spec_.device->start(owner.reduction(live, offset, data, bytes));
}

void CollectiveOperation::copy_along(void* context, Bytes end) {
  LiveAction& live = *static_cast<LiveAction*>(context);
  if (live.receive.moved < end) live.owner->copy(live, end - live.receive.moved);
}

std::string CollectiveOperation::description() const {
  return describe(spec_.bound->program().collective, spec_.id);
}

std::string CollectiveOperation::state() const {
  std::string text = description() + " by " + spec_.bound->program().algorithm + ": instruction " +
                     std::to_string(round_.position) + " of " +
                     std::to_string(spec_.bound->program().instructions.size());
  for (const LiveAction& live : round()) {
    if (live.state == LiveAction::State::kDone) continue;
    if (live.transfer != nullptr) text += describe(*live.transfer, !live.receives());
    if (live.state == LiveAction::State::kHeld) text += " held";
  }
  return text;
}

}  // namespace farandole
