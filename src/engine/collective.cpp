// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/collective.hpp"

#include <algorithm>
#include <utility>

#include "device/cpu/copy.hpp"

namespace farandole {
namespace {

constexpr std::size_t kReplayedMax = 256;
// What is divided while it is in the first-level cache.
constexpr std::size_t kDividedBytes = 8 * 1024;

// What is copied between two looks at the transports, while it is in the second-level cache
// for what is sent from it.
constexpr Bytes kCopiedBytes{std::size_t{64} << 10};

// A buffer of so much has left the caches before what is copied is used. Allgather of 64 MiB, two
// ranks on the cores of one AMD EPYC: 6.6 ms with std::memmove, which reads what it overwrites,
// and 5.4; of 8 MiB 0.56 and 0.42 ms, together with Inbox::kCachedMax.
constexpr Bytes kToMemoryMin{std::size_t{8} << 20};

// A message that one look at the peer's memory, or one packet, takes along. Posting a receive takes
// a tenth of the time of a small allgather.
constexpr Bytes kUrgentMax{4096};

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
      slots_(actions_in(*spec_.program)),
      replays_(slots_.size() <= kReplayedMax),
      in_place_(spec_.program->collective == Collective::kAllreduce && spec_.in == spec_.out) {
  set_buffers(spec_.in, spec_.out);
  if (replays_) {
    rounds_.reserve(slots_.size());
  } else {
    slots_.resize(spec_.program->actions_per_round_max);
  }
  for (Slot& slot : slots_) {
    slot.owner = this;
    slot.send.signature = spec_.signature;
    slot.receive.signature = spec_.signature;
    slot.send.one_sends = slot.receive.one_sends =
        spec_.program->collective == Collective::kBroadcast;
    slot.receive.context = &slot;
    slot.receive.peer_has_read = in_place_;
    slot.receive.buffer_bytes = spec_.out_layout.total() * size_of(spec_.dtype);
  }
  if (replays_) record();
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
  std::uint64_t moved = replayed_ + position_ + open_count_;
  for (const Slot& slot : round()) {
    moved += slot.send.moved.value() + slot.receive.moved.value();
  }
  for (const std::int64_t loop : loops_) moved = moved * 31 + static_cast<std::uint64_t>(loop);
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
  const bool more = replays_ ? replayed_ < rounds_.size() : find_round();
  if (unequal_) {
    refuse_unequal();
    return false;
  }
  if (more) {
    if (replays_) {
      round_ = rounds_[replayed_++];
      position_ = round_.position;
    }
    open_round();
    return true;
  }
  if (spec_.divisor > 1 && spec_.program->completes.empty()) {
    divide(spec_.out, spec_.out, spec_.out_count, spec_.dtype, spec_.divisor);
  }
  if (const auto& [out, count, dtype, divisor] = spec_.narrowed; out != nullptr) {
    narrow(out, spec_.out, count, dtype, divisor, 1.0);
  }
  finish();
  return false;
}

/// Runs the program to the next round in which this rank does something.
bool CollectiveOperation::find_round() {
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
        prepare_round(instruction);
        if (round_.count == 0) break;
        ride_sends(round_);
        put_in_order(round_);
        return true;
    }
  }
  return false;
}

/// Walks through the program without moving anything, for all runs to replay.
void CollectiveOperation::record() {
  while (find_round()) {
    const bool is_first = rounds_.empty();
    Slot* last = is_first ? nullptr : flows_into(rounds_.back(), round_);
    if (is_first || (last == nullptr && !copies_beside(rounds_.back(), round_))) {
      rounds_.push_back(round_);
      continue;
    }
    if (last != nullptr) {
      for (Slot& slot : round()) slot.send.behind = &last->receive;
      last->receive.leads_sends = true;
    }
    Round& joined = rounds_.back();
    joined.count += round_.count;
    joined.position = round_.position;
    ride_sends(joined);
    put_in_order(joined);
  }
  position_ = 0;
  round_ = {};
}

/// Whether the second round may begin with the first one: then the receive that fills what the
/// second sends, else none. Receives of the first fill one place, each behind the one before; so a
/// peer that sends from there has read what comes from here as far as it sends, and may be told to
/// write it.
CollectiveOperation::Slot* CollectiveOperation::flows_into(const Round& first,
                                                           const Round& second) {
  if (spec_.program->collective != Collective::kAllreduce) return nullptr;
  Slot* last = nullptr;
  for (Slot& slot : slots_of(first)) {
    if (slot.held || slot.transfer == nullptr) return nullptr;
    if (!slot.receives()) continue;
    const Receive* previous = last != nullptr ? &last->receive : nullptr;
    if (!streams(slot) || slot.receive.behind != previous) return nullptr;
    last = &slot;
  }
  if (last == nullptr) return nullptr;
  const auto may_begin = [&](const Slot& slot) {
    if (slot.held || slot.transfer == nullptr || !streams(slot)) return false;
    if (!slot.receives()) return is_same(slot.source, last->target);
    return !slot.action->operand && std::ranges::all_of(slots_of(first), [&](const Slot& before) {
      if (before.receives()) {
        return !overlap(slot.target, before.target) && !overlap(slot.target, before.operand);
      }
      return !overlap(slot.target, before.source) ||
             (is_same(slot.target, before.source) && slot.receive.peer == before.send.peer);
    });
  };
  return std::ranges::all_of(slots_of(second), may_begin) ? last : nullptr;
}

/// Whether the second round copies what the first one neither makes nor uses otherwise than to send
/// it: then both may begin together. Where `in` is a part of `out` or the reverse, a copy from one
/// to the other is onto itself, but for collectives that reduce.
bool CollectiveOperation::copies_beside(const Round& first, const Round& second) const {
  return std::ranges::all_of(slots_of(second), [&](const Slot& slot) {
    const bool pays =
        is_small(slot.source) || outgrows_caches(slot) || carrier(first, slot) != nullptr;
    if (slot.held || !pays) return false;
    return std::ranges::all_of(slots_of(first),
                               [&](const Slot& before) { return copies_beside(before, slot); });
  });
}

bool CollectiveOperation::copies_beside(const Slot& before, const Slot& copy) const {
  if (copy.transfer != nullptr || copy.action->operand || reduces(spec_.program->collective) ||
      copy.source.buffer != Buffer::kIn || copy.target.buffer != Buffer::kOut) {
    return false;
  }
  if (overlap(copy.target, before.source)) return false;
  // A send that is neither on its way at once nor moves by pieces would only wait for the copy.
  if (before.transfer == &before.send) return is_small(before.source) || streams(before);
  return !overlap(copy.source, before.target) && !overlap(copy.target, before.target) &&
         !overlap(copy.target, before.operand);
}

bool CollectiveOperation::same_memory(const Place& a, const Place& b) const {
  return a.buffer == b.buffer ||
         (spec_.in == spec_.out && a.buffer != Buffer::kScratch && b.buffer != Buffer::kScratch);
}

bool CollectiveOperation::is_same(const Place& a, const Place& b) const {
  return same_memory(a, b) && a.offset == b.offset && a.bytes == b.bytes;
}

bool CollectiveOperation::overlap(const Place& a, const Place& b) const {
  return same_memory(a, b) && a.offset < b.offset + b.bytes.value() &&
         b.offset < a.offset + a.bytes.value();
}

bool CollectiveOperation::takes_part(const Action& action) const {
  for (const Guard& guard : action.when) {
    const std::int64_t at = value(guard.value);
    if (at < value(guard.low) || at >= value(guard.high)) return false;
  }
  return true;
}

void CollectiveOperation::prepare_round(const Program::Instruction& round) {
  round_ = {.first = replays_ ? round_.first + round_.count : 0, .position = position_};
  bool after_nothing = true;  // what comes before the next action is done
  for (std::uint32_t i = round.first; i < round.first + round.count; ++i) {
    const Action& action = spec_.program->actions[i];
    if (!takes_part(action)) continue;
    Slot& slot = slots_[round_.first + round_.count];
    prepare(slot, action);
    slot.held = action.after_previous && !after_nothing;
    slot.receive.behind = nullptr;
    slot.receive.leads_sends = false;
    slot.send.behind = nullptr;
    slot.send.along = nullptr;
    if (slot.held && follows((&slot)[-1], slot)) {
      slot.held = false;
      slot.receive.behind = &(&slot)[-1].receive;
    } else if (slot.held && !(&slot)[-1].held && outgrows_caches(slot) &&
               copies_beside((&slot)[-1], slot)) {
      slot.held = false;
    }
    after_nothing = !slot.held && is_idle(slot);
    if (after_nothing) continue;
    ++round_.count;
  }
}

bool CollectiveOperation::outgrows_caches(const Slot& copy) {
  return copy.receive.buffer_bytes >= kToMemoryMin;
}

bool CollectiveOperation::is_small(const Place& place) {
  return place.bytes <= kUrgentMax;
}

/// A send that reads what is copied, and is long enough to tell how far it has come.
const CollectiveOperation::Slot* CollectiveOperation::carrier(const Round& round,
                                                              const Slot& copy) const {
  const auto carries = [&](const Slot& slot) {
    return slot.transfer == &slot.send && streams(slot) && is_same(slot.source, copy.source);
  };
  const auto found = std::ranges::find_if(slots_of(round), carries);
  return found != slots_of(round).end() ? &*found : nullptr;
}

/// Has a part that is both copied and sent read once: it is copied as the transport reads it.
void CollectiveOperation::ride_sends(const Round& round) {
  for (Slot& own : slots_of(round)) {
    own.rides = nullptr;
    const bool starts_another = &own != &slots_of(round).back() && (&own)[1].held;
    if (own.transfer != nullptr || own.action->operand || own.held || starts_another) continue;
    own.rides = carrier(round, own);
    if (own.rides == nullptr) continue;
    for (Slot& slot : slots_of(round)) {
      if (slot.transfer != &slot.send || !is_same(slot.source, own.source)) continue;
      slot.send.along = &CollectiveOperation::copy_along;
      slot.send.context = &own;
    }
  }
}

/// What is on its way the sooner the better comes first: small messages. Then receives, since a
/// transport may tell the peer of a long message's, and what is sent behind a receive follows it.
void CollectiveOperation::put_in_order(Round& round) {
  Slot** last = &round.opened_first;
  const auto add_those = [&](auto which) {
    for (Slot& slot : slots_of(round)) {
      if (!which(slot)) continue;
      *last = &slot;
      last = &slot.opened_next;
    }
  };
  const auto is_urgent = [](const Slot& slot) {
    return slot.transfer == &slot.send && slot.send.behind == nullptr &&
           slot.send.bytes <= std::max(kUrgentMax, slot.transport->capabilities().follow_bytes);
  };
  add_those(is_urgent);
  const auto comes_next = [](const Slot& slot) { return slot.receives() || slot.rides != nullptr; };
  add_those(comes_next);
  add_those([&](const Slot& slot) { return !comes_next(slot) && !is_urgent(slot); });
  *last = nullptr;
}

/// Whether it copies what is there already, in every run.
bool CollectiveOperation::is_idle(const Slot& slot) const {
  if (slot.transfer != nullptr || slot.action->operand) return false;
  return slot.source.bytes.value() == 0 ||
         (same_memory(slot.source, slot.target) && slot.source.offset == slot.target.offset);
}

/// Whether two receives that reduce into one place may take turns, piece by piece.
bool CollectiveOperation::follows(const Slot& before, const Slot& slot) {
  const Action &first = *before.action, &second = *slot.action;
  if (before.held || !before.receives() || !slot.receives()) return false;
  if (!second.operand || second.operand != second.target || second.target != first.target) {
    return false;
  }
  return streams(before) && streams(slot);
}

/// Whether another transfer may follow it, or it another one, piece by piece.
bool CollectiveOperation::streams(const Slot& slot) {
  const Capabilities& capabilities = slot.transport->capabilities();
  return capabilities.follows && slot.transfer->bytes > capabilities.follow_bytes;
}

void CollectiveOperation::prepare(Slot& slot, const Action& action) {
  slot.action = &action;
  slot.source = action.source ? place(*action.source) : Place{};
  slot.target = action.target ? place(*action.target) : Place{};
  slot.operand = action.operand ? place(*action.operand) : Place{};
  slot.transfer = nullptr;
  // The lengths of `in` and `out` may come from different arguments. What moves here, without a
  // transport that compares both ends, must be as long as the memory it goes to.
  const auto differ = [](const Place& from, const Place& to) { return from.bytes != to.bytes; };
  unequal_ |= action.operand && differ(slot.operand, slot.target);
  unequal_ |= action.kind == Action::Kind::kLocal && differ(slot.source, slot.target);
  if (action.kind == Action::Kind::kLocal) return;
  const auto peer = static_cast<std::size_t>(spec_.program->rank_at(value(action.peer)));
  const bool sends = action.kind == Action::Kind::kSend;
  slot.transport = group().transports[peer];
  slot.transfer = sends ? static_cast<Transfer*>(&slot.send) : &slot.receive;
  slot.transfer->peer = group().world_ranks[peer];
  slot.transfer->tag.lane = static_cast<std::uint32_t>(action.lane);
  slot.transfer->bytes = sends ? slot.source.bytes : slot.target.bytes;
  slot.receive.consume = action.operand ? &CollectiveOperation::consume : nullptr;
}

/// The front end takes no such counts and no such schedules; this keeps a mistake of ours from
/// writing behind a buffer.
void CollectiveOperation::refuse_unequal() {
  fail(Error{ErrorKind::kInternal, description() + " by " + spec_.program->algorithm +
                                       " would copy between chunks of different lengths"});
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

void CollectiveOperation::open_round() {
  open_count_ = round_.count;
  for (Slot* slot = round_.opened_first; slot != nullptr; slot = slot->opened_next) {
    slot->state = Slot::State::kHeld;
    if (!slot->held) open(*slot);
  }
}

void CollectiveOperation::open(Slot& slot) {
  slot.state = Slot::State::kOpen;
  if (slot.receives()) {
    slot.written = at(slot.target);
    slot.operand_data = at(slot.operand);
    slot.receive.tag.operation = spec_.id;
    slot.receive.target = slot.written;
    slot.transport->post(slot.receive);
  } else if (slot.transfer != nullptr) {
    slot.send.tag.operation = spec_.id;
    slot.send.source = at(slot.source);
    slot.send.peer_reads = false;
    slot.transport->post(slot.send);
  } else {
    slot.written = at(slot.target);
    slot.operand_data = at(slot.operand);
    slot.receive.start();
    if (slot.rides != nullptr && at(slot.source) != slot.written) return;
    if (slot.action->operand) {
      reduce(slot, Bytes{0}, at(slot.source), slot.source.bytes);
    } else {
      copy(slot, slot.source.bytes);
    }
    slot.state = Slot::State::kDone;
    --open_count_;
  }
}

void CollectiveOperation::copy(Slot& slot, Bytes bytes) const {
  const std::size_t moved = slot.receive.moved.value();
  const std::byte* source = at(slot.source) + moved;
  std::byte* target = slot.written + moved;
  const auto way = outgrows_caches(slot) ? &copy_to_memory : &copy_bytes;
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

bool CollectiveOperation::close(Slot& slot) {
  if (slot.rides != nullptr) {
    // What the transport does not read, or has not when it is done with it, peers do.
    const bool alone = outgrows_caches(slot) || slot.rides->send.peer_reads ||
                       slot.rides->state == Slot::State::kDone;
    const Bytes left = slot.source.bytes - slot.receive.moved;
    if (alone) copy(slot, std::min(left, kCopiedBytes));
    if (slot.receive.moved < slot.source.bytes) return alone;
    slot.receive.finish();
  }
  const Transfer& transfer = slot.rides != nullptr ? slot.receive : *slot.transfer;
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
  std::byte* target = slot.written + offset.value();
  const std::byte* operand = slot.operand_data + offset.value();
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

void CollectiveOperation::copy_along(void* context, Bytes end) {
  Slot& slot = *static_cast<Slot*>(context);
  if (slot.receive.moved < end) slot.owner->copy(slot, end - slot.receive.moved);
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
  for (const Slot& slot : round()) {
    if (slot.state == Slot::State::kDone) continue;
    if (slot.transfer != nullptr) text += describe(*slot.transfer, !slot.receives());
    if (slot.state == Slot::State::kHeld) text += " held";
  }
  return text;
}

}  // namespace farandole
