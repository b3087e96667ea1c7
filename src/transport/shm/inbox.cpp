// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/inbox.hpp"

#include <algorithm>
#include <cstring>

#include "device/cpu/copy.hpp"

namespace farandole::shm {
namespace {

Announcement announcement_in(const std::byte* payload) {
  Announcement announcement;
  std::memcpy(&announcement, payload, sizeof(announcement));
  return announcement;
}

}  // namespace

Inbox::Inbox(std::size_t rank_count, const Peers& peers, const Memory& memory, Outbox& outbox)
    : peers_(peers),
      memory_(memory),
      outbox_(outbox),
      matcher_(rank_count, {.block = Bytes{in_slot_max(peers.local.size())}}),
      fetched_(std::make_unique<std::byte[]>(kPieceBytes)) {}

void Inbox::post(Receive& receive) {
  Arrival* arrival = matcher_.post(receive);
  if (arrival == nullptr) return;
  Peer& peer = *peers_.find(receive.peer);
  const Kind kind{static_cast<std::uint32_t>(arrival->handle)};
  if (receive.state == TransferState::kActive) {
    take(peer, receive, kind, arrival->payload);
  } else {
    discard(peer, kind, arrival->payload);
  }
  matcher_.release(*arrival);
}

bool Inbox::drain(Peer& peer) {
  const std::uint64_t before = peer.read;
  // Only so many, that a fast peer cannot keep this rank here.
  for (int i = 0; i < kDrainedMax && !peer.corrupt; ++i) {
    const Slot& slot = peer.slot_at(peer.in_lines, peer.read);
    if (observe(slot.mark) != mark_of(peer.read, peer.in_token) || may_stay(peer, slot)) break;
    read(peer, slot);
    if (peer.read - peer.freed >= peer.lines / 4) {
      publish(peer.in->consumed, peer.read);
      peer.freed = peer.read;
      peer.ring();
    }
  }
  return peer.read != before;
}

/// Whether nobody waits for a payload that set aside would be copied twice.
bool Inbox::may_stay(const Peer& peer, const Slot& slot) const {
  const bool in_slot = slot.kind == Kind::kEager && slot.bytes > sizeof(slot.brief);
  return in_slot && !matcher_.awaits(peer.rank) && !matcher_.cancelled(slot.tag.operation);
}

void Inbox::read(Peer& peer, const Slot& slot) {
  const Envelope envelope{peer.rank, slot.tag, slot.signature, Bytes{slot.bytes}};
  const Kind kind = slot.kind;
  const bool eager = kind == Kind::kEager;
  const std::size_t stored = eager ? envelope.bytes.value() : sizeof(Announcement);
  if ((!eager && kind != Kind::kAnnouncement) || stored > kInSlotMax) {
    peer.corrupt = true;
    return;
  }
  peer.read = line_after(peer.read, stored, peer.lines);
  const Matcher::Verdict verdict = matcher_.arrive(envelope);
  switch (verdict.fate) {
    case Matcher::Fate::kMatched:
      take(peer, *verdict.receive, kind, slot.payload(stored));
      break;
    case Matcher::Fate::kDiscarded:
      discard(peer, kind, slot.payload(stored));
      break;
    case Matcher::Fate::kEarly:
      Arrival& arrival = matcher_.set_aside(envelope, Bytes{stored});
      arrival.handle = static_cast<std::uint64_t>(kind);
      std::memcpy(arrival.payload, slot.payload(stored), stored);
      break;
  }
}

void Inbox::take(Peer& peer, Receive& receive, Kind kind, const std::byte* payload) {
  if (kind == Kind::kAnnouncement) {
    begin(peer, receive, announcement_in(payload));
  } else {
    deliver(receive, payload, receive.bytes.value());
    finish(receive);
  }
}

void Inbox::discard(Peer& peer, Kind kind, const std::byte* payload) {
  if (kind == Kind::kAnnouncement) reply(peer, announcement_in(payload).entry, Reply::kFinished);
}

void Inbox::discard_all(Arrival* arrivals) {
  while (arrivals != nullptr) {
    Arrival* next = arrivals->next;
    discard(*peers_.find(arrivals->envelope.peer),
            Kind{static_cast<std::uint32_t>(arrivals->handle)}, arrivals->payload);
    matcher_.release(*arrivals);
    arrivals = next;
  }
}

void Inbox::reply(Peer& peer, std::uint64_t entry, Reply reply) {
  if (entry >= kEntryCount) {
    peer.corrupt = true;
  } else if (!peer.failed) {
    publish(peer.in_entries[entry].reply, reply);
    peer.ring();
  }
}

void Inbox::begin(Peer& peer, Receive& receive, const Announcement& announcement) {
  const bool staged = announcement.source == Announcement::kStaged;
  const bool reached = is_private(announcement.source)
                           ? peer.process.reached()
                           : staged || peer.mapping.at<std::byte>(announcement.source,
                                                                  receive.bytes.value()) != nullptr;
  if (announcement.entry >= kEntryCount || !reached) peer.corrupt = true;
  const bool puts = !peer.corrupt && !staged && lets_put(peer, receive, announcement);
  // What a corrupt peer named as source may be equal to kPut.
  receive.handle = puts ? kPut : peer.corrupt ? 0 : announcement.source;
  const bool shares = !peer.corrupt && !staged && !puts && lets_share(peer, receive, announcement);
  receive.phase = peer.corrupt ? 0 : announcement.entry | (shares ? kShared : 0);
  accepted_.push(receive);
}

/// Whether the peer was asked to write the target.
bool Inbox::lets_put(Peer& peer, const Receive& receive, const Announcement& announcement) {
  if (!receive.peer_has_read || receive.consume != nullptr) return false;
  if (receive.bytes.value() > kPutBytesMax && announcement.filling == 0) return false;
  return show_target(peer, receive, announcement.entry, puts_to_memory(receive), Reply::kPut);
}

/// Whether the peer was asked to write the end of the target.
bool Inbox::lets_share(Peer& peer, const Receive& receive, const Announcement& announcement) {
  const bool pays =
      one_sends(receive.signature) && receive.bytes.value() >= shared_min(peers_.local.size());
  if (!pays || receive.consume != nullptr || announcement.filling != 0) return false;
  const bool to_memory = buffers_of_all(receive) >= kCachedMax;
  return show_target(peer, receive, announcement.entry, to_memory, Reply::kShare);
}

bool Inbox::show_target(Peer& peer, const Receive& receive, std::size_t index, bool to_memory,
                        Reply what) {
  const auto offset = memory_.offset_of(receive.target, receive.bytes);
  const auto place = offset ? offset->value() : peer.private_place(receive.target, receive);
  if (!place) return false;
  Entry& entry = peer.in_entries[index];
  entry.target.store(*place, std::memory_order_relaxed);
  entry.to_memory.store(to_memory, std::memory_order_relaxed);
  reply(peer, index, what);
  return true;
}

Entry& Inbox::entry_of(Peer& peer, const Receive& receive) {
  return peer.in_entries[receive.phase & ~kShared];
}

/// Whether the peer was asked to write the target and may do so still, or is in the middle of it.
bool Inbox::is_writing(Peer& peer, const Receive& receive) {
  const Entry& entry = entry_of(peer, receive);
  if (observe(entry.cancelled) != 0) return false;
  const std::uint64_t produced = observe(entry.produced);
  if (is_shared(receive)) {
    return produced != entry.claims.of_sender() ||
           !entry.claims.all_taken(piece_count(receive.bytes));
  }
  return receive.handle == kPut && produced == 0;
}

/// Has the peer stop writing the target, once it is done with the piece that it is writing.
void Inbox::withdraw(Peer& peer, const Receive& receive) {
  Entry& entry = entry_of(peer, receive);
  if (is_shared(receive)) {
    entry.claims.take_rest(piece_count(receive.bytes));
  } else if (receive.handle == kPut) {
    publish(entry.reply, Reply::kWithdrawn);
    peer.ring();
  }
}

bool Inbox::advance() {
  moved_ = false;
  step_left_ = kStepBytes;
  accepted_.take_all([this](Receive& receive) { return ended(receive); });
  return moved_;
}

/// Moves one piece; true if the receive has left accepted_.
bool Inbox::ended(Receive& receive) {
  Peer& peer = *peers_.find(receive.peer);
  if (peer.corrupt || step_left_ == 0) return false;
  const Entry& entry = entry_of(peer, receive);
  bool cancelled = observe(entry.cancelled) != 0;
  if (!cancelled) {
    if (receive.handle == kPut) {
      if (observe(entry.produced) != 0) receive.moved = receive.bytes;
    } else if (receive.handle == Announcement::kStaged) {
      deliver_staged(peer, receive);
    } else if (is_shared(receive)) {
      deliver_shared(peer, receive);
    } else {
      deliver_in_place(peer, receive);
    }
    // Asked again after the piece: the owner may have used the source for other things meanwhile.
    cancelled = observe(entry.cancelled) != 0;
  }
  if (!cancelled && receive.moved < receive.bytes) return false;
  reply(peer, receive.phase & ~kShared, Reply::kFinished);
  if (cancelled) {
    post(receive);  // What was promised never comes; it waits on until it is cancelled here too.
  } else {
    finish(receive);
  }
  return moved_ = true;
}

void Inbox::deliver_in_place(Peer& peer, Receive& receive) {
  const std::size_t moved = receive.moved.value();
  const std::uint64_t available = observe(entry_of(peer, receive).available);
  std::size_t piece = std::min({may_move(receive), kPieceBytes, step_left_,
                                std::max<std::size_t>(available, moved) - moved});
  if (moved + piece < receive.bytes.value()) piece -= piece % Receive::kPieceAlignment;
  if (piece > 0) deliver_from_source(peer, receive, piece);
}

/// Moves the next piece unless the sender has taken it; all is there once it has written its own.
void Inbox::deliver_shared(Peer& peer, Receive& receive) {
  const std::size_t piece = std::min((receive.bytes - receive.moved).value(), kPieceBytes);
  const bool may = may_move(receive) >= piece;
  if (may && entry_of(peer, receive).claims.take_first(piece_count(receive.bytes))) {
    deliver_from_source(peer, receive, piece);
  }
  if (!is_writing(peer, receive)) receive.moved = receive.bytes;
}

void Inbox::deliver_from_source(Peer& peer, Receive& receive, std::size_t bytes) {
  const std::uint64_t place = receive.handle + receive.moved.value();  // checked in begin()
  if (!is_private(place)) {
    deliver(receive, peer.mapping.at<std::byte>(place, bytes), bytes);
  } else if (receive.consume != nullptr) {
    if (fetch(peer, receive, fetched_.get(), bytes)) deliver(receive, fetched_.get(), bytes);
  } else if (fetch(peer, receive, receive.target + receive.moved.value(), bytes)) {
    step_left_ -= std::min(step_left_, bytes);
    moved_ = true;
    receive.moved += Bytes{bytes};
  }
}

/// The next piece of a source that is not in the peer's Memory; false if that is gone.
bool Inbox::fetch(Peer& peer, const Receive& receive, std::byte* target, std::size_t bytes) {
  const std::uint64_t source = receive.handle - kPrivate + receive.moved.value();
  // The owner of a cancelled message may have given its memory back already.
  const bool corrupt = peer.corrupt;
  const bool fetched = peer.copy_from(source, target, bytes);
  if (observe(entry_of(peer, receive).cancelled) != 0) peer.corrupt = corrupt;
  return fetched;
}

void Inbox::deliver_staged(Peer& peer, Receive& receive) {
  Entry& entry = entry_of(peer, receive);
  const std::uint64_t offset = observe(entry.pipe);
  if (offset == 0) {
    // A pipe is taken for it only if it will be emptied whatever other pipes hold.
    const bool leads = receive.behind == nullptr || receive.behind->state == TransferState::kDone;
    if (leads && observe(entry.reply) == Reply::kNone) reply(peer, receive.phase, Reply::kAccepted);
    return;
  }
  const std::size_t block = block_bytes(receive.bytes.value());
  const std::uint64_t capacity = entry.capacity.load(std::memory_order_relaxed);
  const auto* pipe = peer.mapping.at<std::byte>(offset, capacity);
  if (pipe == nullptr || capacity < block) {
    peer.corrupt = true;
    return;
  }
  const std::uint64_t first = entry.first.load(std::memory_order_relaxed);
  std::uint64_t consumed = receive.moved.value() / block;
  while (receive.moved < receive.bytes && step_left_ > 0 && observe(entry.produced) > consumed) {
    const std::size_t piece = std::min((receive.bytes - receive.moved).value(), block);
    if (may_move(receive) < piece) break;
    deliver(receive, pipe + block_offset(first + consumed, block, capacity), piece);
    ++consumed;
    if (receive.bytes.value() <= capacity) continue;  // its sender never waits
    publish(entry.consumed, consumed);
    peer.ring();
  }
}

/// Bytes that may be delivered now, as far as the order between messages goes.
std::size_t Inbox::may_move(const Receive& receive) {
  if (receive.behind == nullptr) return (receive.bytes - receive.moved).value();
  // The one in front begins anew, behind this one, if its sender has given up.
  const Bytes end = std::clamp(receive.behind->moved, receive.moved, receive.bytes);
  return (end - receive.moved).value();
}

/// Bytes of one operation's buffers on all ranks of the host.
std::size_t Inbox::buffers_of_all(const Receive& receive) const {
  return std::max(receive.buffer_bytes, receive.bytes).value() * peers_.local.size();
}

/// Whether a sum that is written over what it was made of finds that in no cache any more.
bool Inbox::puts_to_memory(const Receive& receive) const {
  const std::size_t ranks = peers_.local.size();
  const bool at_hand = ranks * kPieceBytes <= kAtHandMax;
  return !at_hand && buffers_of_all(receive) >= kPutCachedMax;
}

void Inbox::deliver(Receive& receive, const std::byte* data, std::size_t bytes) {
  const std::size_t of_all = buffers_of_all(receive);
  const bool cached = of_all < kCachedMax;
  step_left_ -= std::min(step_left_, cached ? kCachedSteps * bytes : bytes);
  moved_ = true;
  if (receive.consume != nullptr) {
    const bool in_pieces = receive.leads_sends && cached && bytes > 2 * kSentOnBytes;
    consume(receive, data, bytes, in_pieces ? kSentOnBytes : bytes);
    return;
  }
  std::byte* target = receive.target + receive.moved.value();
  if (!cached) {
    copy_to_memory(target, data, bytes);
  } else if (receive.peer_has_read) {
    shared_copy_.copy(target, data, bytes);
  } else {
    const auto copy = of_all >= kNearMax ? &copy_asking_ahead : &copy_bytes;
    copy(target, data, bytes);
  }
  receive.moved += Bytes{bytes};
}

/// Hands on piece by piece, each followed by what is sent behind it.
void Inbox::consume(Receive& receive, const std::byte* data, std::size_t bytes,
                    std::size_t piece_bytes) {
  for (std::size_t at = 0; at < bytes; at += piece_bytes) {
    const Bytes piece{std::min(bytes - at, piece_bytes)};
    receive.deliver(receive.moved, data + at, piece);
    receive.moved += piece;
    if (piece_bytes < bytes) outbox_.advance();
  }
}

void Inbox::finish(Receive& receive) {
  received_bytes_ += receive.bytes.value();
  ++received_messages_;
  receive.finish();
}

bool Inbox::cancel(OperationId operation) {
  bool clear = true;
  discard_all(matcher_.cancel(operation));
  accepted_.take_all([&](Receive& receive) {
    if (receive.tag.operation != operation) return false;
    Peer& peer = *peers_.find(receive.peer);
    withdraw(peer, receive);
    if (is_writing(peer, receive)) return clear = false;
    reply(peer, receive.phase & ~kShared, Reply::kFinished);
    receive.fail(ErrorKind::kInternal);
    return true;
  });
  return clear;
}

void Inbox::peer_failed(Peer& peer) {
  discard_all(matcher_.peer_failed(peer.rank));
  accepted_.take_all([&](Receive& receive) {
    if (receive.peer != peer.rank) return false;
    // A peer that is believed dead may only be slow: it must not go on writing.
    withdraw(peer, receive);
    receive.fail(ErrorKind::kRankFailed);
    return true;
  });
}

}  // namespace farandole::shm
