// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/inbox.hpp"

#include <cstring>

#include "transport/shm/eager.hpp"
#include "transport/shm/staged.hpp"

namespace farandole::shm {
namespace {

Announcement announcement_in(const std::byte* payload) {
  Announcement announcement;
  std::memcpy(&announcement, payload, sizeof(announcement));
  return announcement;
}

}  // namespace

Inbox::Inbox(std::size_t rank_count, const Peers& peers, const Places& places)
    : peers_(peers),
      matcher_(rank_count, {.block = Bytes{in_slot_max(peers.local.size())}}),
      delivery_(peers.local.size()),
      in_place_(delivery_),
      put_(places, delivery_, in_place_) {}

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
  // Limited, so that a fast peer cannot keep this rank here.
  for (int i = 0; i < kDrainedMax && !peer.corrupt; ++i) {
    const Slot& slot = peer.slot_at(peer.in_lines, peer.read);
    if (observe(slot.mark) != mark_of(peer.read, peer.in_token)) break;
    if (eager::may_stay(peer, slot, matcher_)) break;
    read(peer, slot);
    if (peer.read - peer.freed >= peer.lines / 4) {
      publish(peer.in->consumed, peer.read);
      peer.freed = peer.read;
      peer.ring();
    }
  }
  return peer.read != before;
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
    eager::deliver(delivery_, peer, receive, payload);
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

void Inbox::begin(Peer& peer, Receive& receive, const Announcement& announcement) {
  const bool staged = announcement.source == Announcement::kStaged;
  const bool reached = staged || in_place::Receiver::reaches(peer, receive, announcement);
  if (announcement.entry >= kEntryCount || !reached) peer.corrupt = true;
  const bool puts = !peer.corrupt && !staged && put_.ask(peer, receive, announcement);
  // The source that a corrupt peer names may be equal to kPut.
  receive.handle = puts ? kPut : peer.corrupt ? 0 : announcement.source;
  const bool shares =
      !peer.corrupt && !staged && !puts && put_.ask_to_share(peer, receive, announcement);
  receive.phase = peer.corrupt ? 0 : announcement.entry | (shares ? kShared : 0);
  accepted_.push(receive);
}

bool Inbox::advance() {
  delivery_.begin_step();
  bool ended_any = false;
  accepted_.take_all([&](Receive& receive) {
    const bool has_ended = ended(receive);
    ended_any |= has_ended;
    return has_ended;
  });
  return ended_any || delivery_.has_moved();
}

/// Moves one piece; true if the receive has left accepted_.
bool Inbox::ended(Receive& receive) {
  Peer& peer = *peers_.find(receive.peer);
  if (peer.corrupt || delivery_.left() == 0) return false;
  const Entry& entry = entry_of(peer, receive);
  bool cancelled = observe(entry.cancelled) != 0;
  if (!cancelled) {
    move_piece(peer, receive);
    // Checked again after the piece: the owner may have used the source for other data meanwhile.
    cancelled = observe(entry.cancelled) != 0;
  }
  if (!cancelled && receive.moved < receive.bytes) return false;
  reply(peer, entry_index(receive), Reply::kFinished);
  if (cancelled) {
    post(receive);  // Its message never comes; it waits until it is cancelled here too.
  } else {
    delivery_.finish(receive);
  }
  return true;
}

void Inbox::move_piece(Peer& peer, Receive& receive) {
  if (receive.handle == kPut) {
    put::Receiver::advance(peer, receive);
  } else if (receive.handle == Announcement::kStaged) {
    staged::advance(delivery_, peer, receive);
  } else if (is_shared(receive)) {
    put_.advance_shared(peer, receive);
  } else {
    in_place_.advance(peer, receive);
  }
}

bool Inbox::cancel(OperationId operation) {
  bool clear = true;
  discard_all(matcher_.cancel(operation));
  accepted_.take_all([&](Receive& receive) {
    if (receive.tag.operation != operation) return false;
    Peer& peer = *peers_.find(receive.peer);
    put::Receiver::withdraw(peer, receive);
    if (put::Receiver::is_writing(peer, receive)) return clear = false;
    reply(peer, entry_index(receive), Reply::kFinished);
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
    put::Receiver::withdraw(peer, receive);
    receive.fail(ErrorKind::kRankFailed);
    return true;
  });
}

}  // namespace farandole::shm
