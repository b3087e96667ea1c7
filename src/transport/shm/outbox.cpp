// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/outbox.hpp"

#include <algorithm>
#include <cstring>

#include "transport/shm/eager.hpp"
#include "transport/shm/in_place.hpp"

namespace farandole::shm {
namespace {

/// Whether the ring to the peer has room for a slot that ends before this line.
bool has_room(Peer& peer, std::uint64_t end) {
  if (end <= peer.writable) return true;
  const std::uint64_t consumed = std::min(observe(peer.out->consumed), peer.written);
  peer.writable = consumed + peer.lines;
  return end <= peer.writable;
}

}  // namespace

Outbox::Outbox(const Memory& memory, const Places& places, Entry* entries, std::byte* pipes,
               std::size_t ranks_on_host)
    : places_(places),
      entries_(entries),
      staged_(memory, entries_, pipes, ranks_on_host),
      put_(entries_) {
  lingering_.reserve(kEntryCount);
}

void Outbox::post(Peer& peer, Send& send) {
  if (!peer.waiting.empty() || !write(peer, send)) peer.waiting.push(send);
}

bool Outbox::flush(Peer& peer) {
  bool moved = false;
  while (!peer.waiting.empty()) {
    Send& send = *peer.waiting.pop();
    if (!write(peer, send)) {
      peer.waiting.push_front(send);
      break;
    }
    moved = true;
  }
  return moved;
}

bool Outbox::write(Peer& peer, Send& send) {
  const bool may_announce = send.bytes.value() > peer.policy.slot_always_max();
  const auto place = may_announce ? places_.of(peer, send.source, send) : std::nullopt;
  const bool eager = eager::suits(peer.policy, send.bytes, place);
  const std::size_t payload = eager ? send.bytes.value() : sizeof(Announcement);
  const std::uint64_t line = peer.written, end = line_after(line, payload, peer.lines);
  if (!has_room(peer, end) || (!eager && entries_.all_in_use())) return false;
  Slot& slot = peer.slot_at(peer.out_lines, line);
  if (!eager) {
    const Announcement announcement = announce(peer, send, place);
    std::memcpy(slot.brief, &announcement, sizeof(announcement));
    announced_.push(send);
  } else {
    eager::write(peer, slot, send);
  }
  // Written last: the peer polls the mark, and so takes the line of these fields back at once.
  slot.kind = eager ? Kind::kEager : Kind::kAnnouncement;
  slot.tag = send.tag;
  slot.bytes = send.bytes.value();
  slot.signature = send.signature;
  peer.written = end;
  publish(slot.mark, mark_of(line, peer.out_token));
  peer.ring();
  // The next slot's line is in the peer's cache; the store that publishes it would wait for it.
  __builtin_prefetch(&peer.slot_at(peer.out_lines, end), 1);
  sent_bytes_ += send.bytes.value();
  ++sent_messages_;
  return true;
}

Announcement Outbox::announce(Peer& peer, Send& send, std::optional<std::uint64_t> place) {
  const Bytes available = send.available();
  send.handle = entries_.take(peer, available);
  send.peer_reads = place.has_value();
  if (!place) staged_.offer_pipe(send);
  const bool filling = available < send.bytes;
  return {place.value_or(Announcement::kStaged), static_cast<std::uint32_t>(send.handle),
          filling ? 1U : 0U};
}

bool Outbox::advance() {
  step_.begin(kStepBytes);
  announced_.take_all([this](Send& send) { return ended(send); });
  std::erase_if(lingering_, [this](std::size_t index) {
    if (observe(entries_[index].reply) != Reply::kFinished) return false;
    free_entry(index);
    return step_.moved = true;
  });
  return step_.moved;
}

/// Takes the next step that the receiver has asked for; true if the send has left announced_.
bool Outbox::ended(Send& send) {
  const Reply reply = observe(entries_[send.handle].reply);
  switch (reply) {
    case Reply::kFinished:
      free_entry(send.handle);
      break;
    case Reply::kShare:
      put_.advance_shared(send, step_);
      return false;
    case Reply::kPut:
    case Reply::kWithdrawn:
      if (!advance_put(send, reply)) return false;
      break;
    default:
      if (!advance_read(send, reply)) return false;
      break;
  }
  send.finish();
  return step_.moved = true;
}

/// Moves a message that is put; true once nothing more is written to the target.
bool Outbox::advance_put(Send& send, Reply reply) {
  if (reply == Reply::kPut && !put_.advance(send, step_)) return false;
  publish(entries_[send.handle].produced, std::uint64_t{1});
  entries_.peer_of(send.handle).ring();
  lingering_.push_back(send.handle);
  return true;
}

/// Moves a message that the receiver reads, in place or from a pipe; true once the source is not
/// needed any more.
bool Outbox::advance_read(Send& send, Reply reply) {
  if (!staged_.has_pipe(send)) {
    if (reply != Reply::kAccepted) {
      in_place::show_available(entries_, send);
      return false;
    }
    // Only once there is something to stage: by then every message that the rest waits for has its
    // own pipe, so no circle of ranks can wait for each other's pipes.
    if (!staged_.any_is_free() || send.available() == Bytes{0}) return false;
    staged_.take_pipe(send);
  }
  if (!staged_.advance(send, step_)) return false;
  lingering_.push_back(send.handle);  // the pipe stays until the receiver has emptied it
  return true;
}

void Outbox::free_entry(std::size_t index) {
  staged_.leave(index);
  entries_.give_back(index);
}

void Outbox::cancel(const Peers& peers, OperationId operation) {
  for (const auto& peer : peers.local) {
    peer->waiting.take_all([&](Send& send) {
      if (send.tag.operation != operation) return false;
      send.fail(ErrorKind::kInternal);
      return true;
    });
  }
  announced_.take_all([&](Send& send) {
    if (send.tag.operation != operation) return false;
    entries_.cancel(send.handle);
    entries_.peer_of(send.handle).ring();
    lingering_.push_back(send.handle);
    send.fail(ErrorKind::kInternal);
    return true;
  });
}

void Outbox::peer_failed(Peer& peer) {
  while (Send* send = peer.waiting.pop()) send->fail(ErrorKind::kRankFailed);
  announced_.take_all([&](Send& send) {
    if (&entries_.peer_of(send.handle) != &peer) return false;
    free_entry(send.handle);
    send.fail(ErrorKind::kRankFailed);
    return true;
  });
  std::erase_if(lingering_, [&](std::size_t index) {
    if (&entries_.peer_of(index) != &peer) return false;
    free_entry(index);
    return true;
  });
}

}  // namespace farandole::shm
