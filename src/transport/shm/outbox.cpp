// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/outbox.hpp"

#include <algorithm>
#include <cstring>

#include "base/copy.hpp"

namespace farandole::shm {
namespace {

/// A free slot of the ring to the peer, or null.
Slot* free_slot(Peer& peer) {
  if (peer.written >= peer.writable) {
    const std::uint64_t consumed = std::min(observe(peer.out->consumed), peer.written);
    peer.writable = consumed + peer.slot_count;
    if (peer.written >= peer.writable) return nullptr;
  }
  return &peer.out_slots[peer.written % peer.slot_count];
}

}  // namespace

Outbox::Outbox(const Memory& memory, Entry* entries, std::byte* pipes, std::size_t pipe_bytes,
               bool peer_memory)
    : memory_(memory),
      entries_(entries),
      pipes_(pipes),
      pipe_bytes_(pipe_bytes),
      peer_memory_(peer_memory),
      uses_(kEntryCount) {
  for (std::size_t i = kEntryCount; i > 0; --i) free_entries_.push_back(i - 1);
  for (std::size_t i = kPipeCount; i > 0; --i) free_pipes_.push_back(i - 1);
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
  const bool eager = send.bytes.value() <= Slot::kPayloadBytes;
  Slot* slot = free_slot(peer);
  if (slot == nullptr || (!eager && free_entries_.empty())) return false;
  slot->kind = eager ? Kind::kEager : Kind::kAnnouncement;
  slot->tag = send.tag;
  slot->bytes = send.bytes.value();
  slot->signature = send.signature;
  if (!eager) {
    const Announcement announcement = announce(peer, send);
    std::memcpy(slot->payload, &announcement, sizeof(announcement));
    announced_.push(send);
  } else {
    copy_bytes(slot->payload, send.source, send.bytes.value());
    send.finish();
  }
  ++peer.written;
  publish(slot->sequence, static_cast<std::uint32_t>(peer.written));
  peer.ring();
  sent_bytes_ += send.bytes.value();
  ++sent_messages_;
  return true;
}

Announcement Outbox::announce(Peer& peer, Send& send) {
  const std::size_t index = free_entries_.back();
  free_entries_.pop_back();
  uses_[index] = Use{&peer, kNoPipe};
  Entry& entry = entries_[index];
  entry.cancelled.store(0, std::memory_order_relaxed);
  entry.pipe.store(0, std::memory_order_relaxed);
  entry.produced.store(0, std::memory_order_relaxed);
  entry.consumed.store(0, std::memory_order_relaxed);
  entry.reply.store(Reply::kNone, std::memory_order_relaxed);
  send.handle = index;
  const auto offset = peer_memory_ ? memory_.offset_of(send.source, send.bytes) : std::nullopt;
  if (offset) return Announcement{offset->value(), index};
  // Half of the pipes are for messages whose receives are there, which may be waited for.
  if (free_pipes_.size() > kPipeCount / 2) take_pipe(send);
  return Announcement{Announcement::kStaged, index};
}

bool Outbox::advance() {
  moved_ = false;
  announced_.take_all([this](Send& send) { return ended(send); });
  std::erase_if(lingering_, [this](std::size_t index) {
    if (observe(entries_[index].reply) != Reply::kFinished) return false;
    free_entry(index);
    return moved_ = true;
  });
  return moved_;
}

bool Outbox::ended(Send& send) {
  const Reply reply = observe(entries_[send.handle].reply);
  if (reply == Reply::kFinished) {
    free_entry(send.handle);
  } else {
    const bool may_stage = reply == Reply::kAccepted || uses_[send.handle].pipe != kNoPipe;
    if (!may_stage || !stage(send)) return false;
    lingering_.push_back(send.handle);  // the pipe stays until the receiver has emptied it
  }
  send.finish();
  return moved_ = true;
}

/// Fills the free blocks of the send's pipe; true once the whole source is in it.
bool Outbox::stage(Send& send) {
  Use& use = uses_[send.handle];
  Entry& entry = entries_[send.handle];
  if (use.pipe == kNoPipe) {
    if (free_pipes_.empty()) return false;
    take_pipe(send);
  }
  std::uint64_t produced = entry.produced.load(std::memory_order_relaxed);
  const std::size_t block = block_bytes(send.bytes.value());
  while (send.moved < send.bytes && produced - observe(entry.consumed) < pipe_bytes_ / block) {
    const std::uint64_t first = entry.first.load(std::memory_order_relaxed);
    std::byte* target =
        pipes_ + use.pipe * pipe_bytes_ + block_offset(first + produced, block, pipe_bytes_);
    const std::size_t piece = std::min((send.bytes - send.moved).value(), block);
    copy_bytes(target, send.source + send.moved.value(), piece);
    send.moved += Bytes{piece};
    publish(entry.produced, ++produced);
    use.peer->ring();
    moved_ = true;
  }
  return send.moved == send.bytes;
}

/// The pipe used last, from where its last message ended: so small messages, too, go round all of
/// it, and no more memory is touched than is in use at once.
void Outbox::take_pipe(Send& send) {
  const std::size_t pipe = free_pipes_.back();
  free_pipes_.pop_back();
  Use& use = uses_[send.handle];
  use.pipe = pipe;
  Entry& entry = entries_[send.handle];
  const std::size_t block = block_bytes(send.bytes.value());
  const std::size_t blocks = (send.bytes.value() + block - 1) / block;
  const std::size_t first = (pipe_ends_[pipe] + block - 1) / block;
  pipe_ends_[pipe] = (first + blocks) * block % pipe_bytes_;
  entry.first.store(first, std::memory_order_relaxed);
  const std::byte* data = pipes_ + pipe * pipe_bytes_;
  publish(entry.pipe, static_cast<std::uint64_t>(data - memory_.base()));
}

void Outbox::free_entry(std::size_t index) {
  const Use use = uses_[index];
  if (use.pipe != kNoPipe) free_pipes_.push_back(use.pipe);
  if (!use.peer->failed) {
    free_entries_.push_back(index);
  } else {
    // A peer that is believed dead may only be slow, and may still read and reply: it must not
    // take what it reads for the message, and the entry is never used again.
    publish(entries_[index].cancelled, std::uint32_t{1});
  }
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
    publish(entries_[send.handle].cancelled, std::uint32_t{1});
    uses_[send.handle].peer->ring();
    lingering_.push_back(send.handle);
    send.fail(ErrorKind::kInternal);
    return true;
  });
}

void Outbox::peer_failed(Peer& peer) {
  while (Send* send = peer.waiting.pop()) send->fail(ErrorKind::kRankFailed);
  announced_.take_all([&](Send& send) {
    if (uses_[send.handle].peer != &peer) return false;
    free_entry(send.handle);
    send.fail(ErrorKind::kRankFailed);
    return true;
  });
  std::erase_if(lingering_, [&](std::size_t index) {
    if (uses_[index].peer != &peer) return false;
    free_entry(index);
    return true;
  });
}

}  // namespace farandole::shm
