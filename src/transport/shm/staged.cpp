// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/staged.hpp"

#include <algorithm>
#include <utility>

namespace farandole::shm::staged {

Sender::Sender(const Memory& memory, Entries& entries, std::byte* pipes, std::size_t ranks_on_host)
    : memory_(memory),
      entries_(entries),
      readers_(kEntryCount),
      pipes_(pipe_count(ranks_on_host)),
      free_pipes_(pipes_.size()) {
  // The long pipe comes first, where the sizes of others cannot shift it against huge pages.
  for (std::size_t i = pipes_.size(); i > 0; --i) {
    pipes_[i - 1].data = pipes;
    pipes_[i - 1].capacity = pipe_bytes(ranks_on_host, i - 1);
    pipes += pipes_[i - 1].capacity;
  }
}

void Sender::offer_pipe(const Send& send) {
  if (!join_pipe(send) && free_pipes_ > pipes_.size() / 2) take_pipe(send);
}

/// Shares a pipe that is to carry the same source, if nothing is staged in it yet: until then no
/// send from this source has ended, so the source is unchanged since the pipe was taken.
bool Sender::join_pipe(const Send& send) {
  if (!entries_.peer_of(send.handle).policy.paths().joined_pipes) return false;
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

/// Takes the long pipe for a long message, else the first free one. The message begins where the
/// last one in the pipe ended, so that small messages, too, go round the whole pipe. No more memory
/// is touched than is in use at once, and a rank that sends to the same peers again finds their
/// pipes.
void Sender::take_pipe(const Send& send) {
  const CopyPolicy& policy = entries_.peer_of(send.handle).policy;
  const bool is_long = send.bytes.value() >= policy.long_pipe_min(send.one_sends);
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

void Sender::use_pipe(std::size_t entry, std::size_t index) {
  Pipe& pipe = pipes_[index];
  readers_[entry] = {.pipe = index, .next = std::exchange(pipe.users, entry)};
  entries_[entry].capacity.store(pipe.capacity, std::memory_order_relaxed);
  entries_[entry].first.store(pipe.first, std::memory_order_relaxed);
  publish(entries_[entry].pipe, static_cast<std::uint64_t>(pipe.data - memory_.base()));
}

void Sender::leave(std::size_t entry) {
  const Reader reader = std::exchange(readers_[entry], {});
  if (reader.pipe == kNone) return;
  Pipe& pipe = pipes_[reader.pipe];
  std::size_t* link = &pipe.users;
  while (*link != entry) link = &readers_[*link].next;
  *link = reader.next;
  if (pipe.users == kNone) ++free_pipes_;
}

bool Sender::advance(Send& send, Step& step) {
  Pipe& pipe = pipes_[readers_[send.handle].pipe];
  const bool all = stage(pipe, send, step);
  send.moved = Bytes{pipe.staged};
  return all;
}

bool Sender::stage(Pipe& pipe, const Send& send, Step& step) {
  const std::size_t block = block_bytes(pipe.bytes.value());
  const std::size_t end = pipe.bytes.value(), ready = send.available().value();
  while (pipe.staged < ready && has_free_block(pipe, block)) {
    const std::size_t begun = pipe.staged - pipe.produced * block;
    const std::size_t piece = std::min(ready - pipe.staged, block - begun);
    std::byte* target = pipe.data + block_offset(pipe.first + pipe.produced, block, pipe.capacity);
    fill(pipe, send, target + begun, piece);
    pipe.staged += piece;
    step.moved = true;
    if (begun + piece < block && pipe.staged < end) break;
    ++pipe.produced;
    for (std::size_t i = pipe.users; i != kNone; i = readers_[i].next) {
      publish(entries_[i].produced, pipe.produced);
      entries_.peer_of(i).ring();
    }
  }
  return pipe.staged == end;
}

/// Copies the next bytes of the source into a block.
void Sender::fill(Pipe& pipe, const Send& send, std::byte* target, std::size_t bytes) {
  const CopyPolicy& policy = entries_.peer_of(send.handle).policy;
  policy.to_shared(pipe.shared_copy, target, pipe.source + pipe.staged, bytes);
  if (send.along != nullptr) send.along(send.context, Bytes{pipe.staged + bytes});
}

/// Looks at the readers' counters only once the pipe has been filled: each look takes a counter's
/// cache line from its reader, which must take it back.
bool Sender::has_free_block(const Pipe& pipe, std::size_t block) const {
  const std::uint64_t blocks = pipe.capacity / block;
  return pipe.produced < blocks || pipe.produced - consumed(pipe) < blocks;
}

/// Blocks that every reader is done with.
std::uint64_t Sender::consumed(const Pipe& pipe) const {
  std::uint64_t least = pipe.produced;
  for (std::size_t i = pipe.users; i != kNone; i = readers_[i].next) {
    least = std::min(least, observe(entries_[i].consumed));
  }
  return least;
}

void advance(Delivery& delivery, Peer& peer, Receive& receive) {
  Entry& entry = entry_of(peer, receive);
  const std::uint64_t offset = observe(entry.pipe);
  if (offset == 0) {
    // Asks for a pipe only if this receive will empty it whatever other pipes hold.
    const bool leads = receive.behind == nullptr || receive.behind->state == TransferState::kDone;
    if (leads && observe(entry.reply) == Reply::kNone) {
      reply(peer, entry_index(receive), Reply::kAccepted);
    }
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
  while (receive.moved < receive.bytes && delivery.left() > 0 &&
         observe(entry.produced) > consumed) {
    const std::size_t piece = std::min((receive.bytes - receive.moved).value(), block);
    if (Delivery::may_move(receive) < piece) break;
    delivery.deliver(peer.policy, receive, pipe + block_offset(first + consumed, block, capacity),
                     piece);
    ++consumed;
    if (receive.bytes.value() <= capacity) continue;  // the sender never waits for blocks
    publish(entry.consumed, consumed);
    peer.ring();
  }
}

}  // namespace farandole::shm::staged
