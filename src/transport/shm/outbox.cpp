// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/outbox.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "device/cpu/copy.hpp"

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

Outbox::Outbox(const Memory& memory, Entry* entries, std::byte* pipes, std::size_t ranks_on_host,
               bool peer_memory)
    : memory_(memory),
      entries_(entries),
      peer_memory_(peer_memory),
      in_slot_max_(in_slot_max(ranks_on_host)),
      uses_(kEntryCount),
      pipes_(pipe_count(ranks_on_host)),
      free_pipes_(pipes_.size()) {
  for (std::size_t i = kEntryCount; i > 0; --i) free_entries_.push_back(i - 1);
  // The long one first, where the others cannot shift it against huge pages.
  for (std::size_t i = pipes_.size(); i > 0; --i) {
    pipes_[i - 1].data = pipes;
    pipes_[i - 1].capacity = pipe_bytes(ranks_on_host, i - 1);
    pipes += pipes_[i - 1].capacity;
  }
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
  const auto place = send.bytes.value() > kInSlot ? place_of(peer, send) : std::nullopt;
  const bool eager = send.bytes.value() <= in_slot_max_ && !place;
  const std::size_t payload = eager ? send.bytes.value() : sizeof(Announcement);
  const std::uint64_t line = peer.written, end = line_after(line, payload, peer.lines);
  if (!has_room(peer, end) || (!eager && free_entries_.empty())) return false;
  Slot& slot = peer.slot_at(peer.out_lines, line);
  if (!eager) {
    const Announcement announcement = announce(peer, send, place);
    std::memcpy(slot.brief, &announcement, sizeof(announcement));
    announced_.push(send);
  } else {
    peer.shared_copy.copy(slot.payload(payload), send.source, payload);
    send.finish();
  }
  // All at the end, since the peer, who waits for the mark, takes their line back at once.
  slot.kind = eager ? Kind::kEager : Kind::kAnnouncement;
  slot.tag = send.tag;
  slot.bytes = send.bytes.value();
  slot.signature = send.signature;
  peer.written = end;
  publish(slot.mark, mark_of(line, peer.out_token));
  peer.ring();
  // The next slot's line is the peer's; the store that publishes it would wait for it.
  __builtin_prefetch(&peer.slot_at(peer.out_lines, end), 1);
  sent_bytes_ += send.bytes.value();
  ++sent_messages_;
  return true;
}

/// Where the peer reads the source in place, if it does.
std::optional<std::uint64_t> Outbox::place_of(const Peer& peer, const Send& send) const {
  const auto offset = peer_memory_ ? memory_.offset_of(send.source, send.bytes) : std::nullopt;
  return offset ? offset->value() : peer.private_place(send.source, send);
}

Announcement Outbox::announce(Peer& peer, Send& send, std::optional<std::uint64_t> place) {
  const std::size_t index = free_entries_.back();
  free_entries_.pop_back();
  uses_[index] = Use{.peer = &peer};
  Entry& entry = entries_[index];
  entry.cancelled.store(0, std::memory_order_relaxed);
  entry.pipe.store(0, std::memory_order_relaxed);
  entry.produced.store(0, std::memory_order_relaxed);
  entry.consumed.store(0, std::memory_order_relaxed);
  entry.reply.store(Reply::kNone, std::memory_order_relaxed);
  entry.claims.clear();
  const Bytes available = send.available();
  entry.available.store(available.value(), std::memory_order_relaxed);
  send.handle = index;
  const bool filling = available < send.bytes;
  Announcement announcement{place.value_or(Announcement::kStaged),
                            static_cast<std::uint32_t>(index), filling ? 1U : 0U};
  send.peer_reads = place.has_value();
  if (place) return announcement;
  // Half of the pipes are for messages whose receives are there, which may be waited for.
  if (!join_pipe(send) && free_pipes_ > pipes_.size() / 2) take_pipe(send);
  return announcement;
}

bool Outbox::advance() {
  moved_ = false;
  step_left_ = kStepBytes;
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
  } else if (reply == Reply::kShare) {
    share(*uses_[send.handle].peer, send);
    return false;
  } else if (reply == Reply::kPut || reply == Reply::kWithdrawn) {
    Peer& peer = *uses_[send.handle].peer;
    if (reply == Reply::kPut && !put(peer, send)) return false;
    publish(entries_[send.handle].produced, std::uint64_t{1});
    peer.ring();
    lingering_.push_back(send.handle);
  } else {
    const Use& use = uses_[send.handle];
    if (use.pipe == kNone) {
      if (reply != Reply::kAccepted) {
        show_available(send);
        return false;
      }
      // Once there is something to stage, everything that the rest waits for is on its way.
      if (free_pipes_ == 0 || send.available() == Bytes{0}) return false;
      take_pipe(send);
    }
    Pipe& pipe = pipes_[use.pipe];
    const bool staged = stage(pipe, send);
    send.moved = Bytes{pipe.staged};
    if (!staged) return false;
    lingering_.push_back(send.handle);  // the pipe stays until the receiver has emptied it
  }
  send.finish();
  return moved_ = true;
}

/// Tells a peer that reads the source in place how much of it is there.
void Outbox::show_available(const Send& send) {
  Entry& entry = entries_[send.handle];
  const std::uint64_t available = send.available().value();
  if (available <= entry.available.load(std::memory_order_relaxed)) return;
  publish(entry.available, available);
  uses_[send.handle].peer->ring();
}

/// Writes a piece of the message into the receiver's memory; true once all is there.
bool Outbox::put(Peer& peer, Send& send) {
  const std::size_t moved = send.moved.value();
  const std::size_t piece = std::min({send.available().value() - moved, kPieceBytes, step_left_});
  // A call of the kernel costs; what makes the source goes on meanwhile.
  const bool is_last = moved + piece == send.bytes.value();
  if (is_private(observe(entries_[send.handle].target)) && piece < kPieceBytes && !is_last) {
    return false;
  }
  if (!write_target(peer, send, moved, piece)) return false;
  send.moved += Bytes{piece};
  return send.moved == send.bytes;
}

/// Writes the last piece that neither side has taken into the receiver's memory. The receiver may
/// still read others then, so the source is wanted until it has finished.
void Outbox::share(Peer& peer, Send& send) {
  if (step_left_ == 0) return;
  Entry& entry = entries_[send.handle];
  const auto piece = entry.claims.take_last(piece_count(send.bytes));
  if (!piece) return;
  const std::size_t offset = *piece * kPieceBytes;
  const std::size_t bytes = std::min(send.bytes.value() - offset, kPieceBytes);
  if (!write_target(peer, send, offset, bytes)) return;
  publish(entry.produced, entry.produced.load(std::memory_order_relaxed) + 1);
  peer.ring();
}

/// Copies so much of the source to the same place of the receiver's memory; false if that is not
/// there.
bool Outbox::write_target(Peer& peer, const Send& send, std::size_t offset, std::size_t bytes) {
  const Entry& entry = entries_[send.handle];
  const std::uint64_t place = observe(entry.target);
  const std::byte* source = send.source + offset;
  if (is_private(place)) {
    if (!peer.copy_to(place - kPrivate + offset, source, bytes)) return false;
  } else {
    auto* target = peer.mapping.at<std::byte>(place, send.bytes.value());
    if (target == nullptr) {
      peer.corrupt = true;
      return false;
    }
    const auto copy = observe(entry.to_memory) ? &copy_to_memory : &copy_bytes;
    copy(target + offset, source, bytes);
  }
  step_left_ -= std::min(step_left_, bytes);
  moved_ |= bytes > 0;
  return true;
}

/// Fills the free blocks of a pipe as far as the source is there; true once all of it is staged.
bool Outbox::stage(Pipe& pipe, const Send& send) {
  const std::size_t block = block_bytes(pipe.bytes.value());
  const std::size_t end = pipe.bytes.value(), ready = send.available().value();
  while (pipe.staged < ready && has_free_block(pipe, block)) {
    const std::size_t begun = pipe.staged - pipe.produced * block;
    const std::size_t piece = std::min(ready - pipe.staged, block - begun);
    std::byte* target = pipe.data + block_offset(pipe.first + pipe.produced, block, pipe.capacity);
    fill(pipe, send, target + begun, pipe.staged, piece);
    pipe.staged += piece;
    moved_ = true;
    if (begun + piece < block && pipe.staged < end) break;
    ++pipe.produced;
    for (std::size_t i = pipe.users; i != kNone; i = uses_[i].next) {
      publish(entries_[i].produced, pipe.produced);
      uses_[i].peer->ring();
    }
  }
  return pipe.staged == end;
}

/// Copies a block from where `staged` bytes of the source end.
void Outbox::fill(Pipe& pipe, const Send& send, std::byte* target, std::size_t staged,
                  std::size_t bytes) {
  const bool in_steps = send.along != nullptr && !pipe.shared_copy.past_cache();
  const std::size_t step = in_steps ? Send::kAlongBytes : bytes;
  for (std::size_t at = 0; at < bytes; at += step) {
    const std::size_t piece = std::min(step, bytes - at);
    pipe.shared_copy.copy(target + at, pipe.source + staged + at, piece);
    if (send.along != nullptr) send.along(send.context, Bytes{staged + at + piece});
  }
}

/// Asks the readers only once it has filled the pipe, since they take the line of the answer back.
bool Outbox::has_free_block(const Pipe& pipe, std::size_t block) const {
  const std::uint64_t blocks = pipe.capacity / block;
  return pipe.produced < blocks || pipe.produced - consumed(pipe) < blocks;
}

/// Blocks that every reader is done with.
std::uint64_t Outbox::consumed(const Pipe& pipe) const {
  std::uint64_t least = pipe.produced;
  for (std::size_t i = pipe.users; i != kNone; i = uses_[i].next) {
    least = std::min(least, observe(entries_[i].consumed));
  }
  return least;
}

/// Reads along in a pipe that is to carry the same source, if nothing is in it yet: until then no
/// send from this source has ended, so the source is what it was when the pipe was taken.
bool Outbox::join_pipe(const Send& send) {
  for (std::size_t i = 0; i < pipes_.size(); ++i) {
    const Pipe& pipe = pipes_[i];
    if (pipe.users == kNone || pipe.staged > 0 || pipe.source != send.source ||
        pipe.bytes != send.bytes || pipe.operation != send.tag.operation) {
      continue;
    }
    use_pipe(send.handle, i);
    return true;
  }
  return false;
}

/// The long one for a long message, else the first free one, from where its last message ended: so
/// small messages, too, go round all of it, no more memory is touched than is in use at once, and a
/// rank that sends to the same peers again finds their pipes.
void Outbox::take_pipe(const Send& send) {
  const bool is_long = send.bytes.value() >= long_message_min(send.signature);
  std::size_t index = is_long && pipes_.back().users == kNone ? pipes_.size() - 1 : 0;
  while (pipes_[index].users != kNone) ++index;
  --free_pipes_;
  Pipe& pipe = pipes_[index];
  if (!pipe.used && pipe.capacity % Memory::kHugePage == 0) {
    Memory::use_huge_pages(pipe.data, Bytes{pipe.capacity});
  }
  pipe.used = true;
  const std::size_t block = block_bytes(send.bytes.value());
  pipe.operation = send.tag.operation;
  pipe.source = send.source;
  pipe.bytes = send.bytes;
  pipe.first = (pipe.end + block - 1) / block;
  pipe.staged = 0;
  pipe.produced = 0;
  pipe.end = block_after(pipe.first, send.bytes.value()) * block % pipe.capacity;
  use_pipe(send.handle, index);
}

void Outbox::use_pipe(std::size_t entry, std::size_t pipe) {
  uses_[entry].pipe = pipe;
  uses_[entry].next = std::exchange(pipes_[pipe].users, entry);
  entries_[entry].capacity.store(pipes_[pipe].capacity, std::memory_order_relaxed);
  entries_[entry].first.store(pipes_[pipe].first, std::memory_order_relaxed);
  publish(entries_[entry].pipe, static_cast<std::uint64_t>(pipes_[pipe].data - memory_.base()));
}

void Outbox::free_entry(std::size_t index) {
  const Use use = uses_[index];
  if (use.pipe != kNone) {
    Pipe& pipe = pipes_[use.pipe];
    std::size_t* link = &pipe.users;
    while (*link != index) link = &uses_[*link].next;
    *link = use.next;
    if (pipe.users == kNone) ++free_pipes_;
  }
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
