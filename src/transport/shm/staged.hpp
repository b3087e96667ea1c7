// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "device/cpu/memory.hpp"
#include "transport/shm/delivery.hpp"
#include "transport/shm/entries.hpp"
#include "transport/shm/layout.hpp"
#include "transport/shm/peer.hpp"
#include "transport/shm/shared_copy.hpp"
#include "transport/transfer.hpp"

// Staged: the sender copies the source block by block into a pipe in its own memory, and the
// receiver copies it out of the pipe. Any source can go this way.
namespace farandole::shm::staged {

/// Sending: the pipes of one rank. Sends of one operation from the same source share a pipe, so
/// that the source is copied once for all readers.
///
/// Threads   the engine's driver only.
/// Blocking  Only the constructor allocates.
class Sender {
 public:
  /// `pipes` [all_pipes_bytes] lie in `memory`.
  Sender(const Memory& memory, Entries& entries, std::byte* pipes, std::size_t ranks_on_host);

  bool has_pipe(const Send& send) const { return readers_[send.handle].pipe != kNone; }
  bool any_is_free() const { return free_pipes_ > 0; }

  /// Gives an announced message a pipe if it can share that of another, or if more than half of the
  /// pipes are free: the other half is for messages whose receives are there, since these may be
  /// waited for.
  void offer_pipe(const Send& send);
  /// Gives the message a pipe of its own; one must be free.
  void take_pipe(const Send& send);
  /// Fills free blocks of its pipe as far as the source is there; true once all of it is staged.
  bool advance(Send& send, Step& step);
  /// The receiver is done with the pipe of this entry, if the entry has one.
  void leave(std::size_t entry);

 private:
  static constexpr std::size_t kNone = kEntryCount;
  /// The pipe that an entry reads.
  struct Reader {
    std::size_t pipe = kNone;
    std::size_t next = kNone;  // the next entry on the pipe
  };
  struct Pipe {
    std::byte* data = nullptr;
    std::size_t capacity = 0;   // bytes
    std::size_t users = kNone;  // the first entry that reads it; kNone while it is free
    OperationId operation;
    const std::byte* source = nullptr;
    Bytes bytes;
    std::uint64_t first = 0;     // index of the message's first block
    std::size_t staged = 0;      // bytes
    std::uint64_t produced = 0;  // blocks staged
    std::size_t end = 0;         // byte at which the next message may begin
    bool used = false;           // by any message yet
    SharedCopy shared_copy;      // mostly the same peers read it
  };

  bool join_pipe(const Send& send);
  bool stage(Pipe& pipe, const Send& send, Step& step);
  void fill(Pipe& pipe, const Send& send, std::byte* target, std::size_t bytes);
  bool has_free_block(const Pipe& pipe, std::size_t block) const;
  std::uint64_t consumed(const Pipe& pipe) const;
  void use_pipe(std::size_t entry, std::size_t pipe);

  const Memory& memory_;
  Entries& entries_;
  std::vector<Reader> readers_;  // by entry
  std::vector<Pipe> pipes_;
  std::size_t free_pipes_;
};

/// Receiving: delivers the blocks that are staged, or asks the sender to stage them.
void advance(Delivery& delivery, Peer& peer, Receive& receive);

}  // namespace farandole::shm::staged
