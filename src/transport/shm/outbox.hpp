// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "device/cpu/memory.hpp"
#include "transport/queue.hpp"
#include "transport/shm/layout.hpp"
#include "transport/shm/peer.hpp"
#include "transport/shm/shared_copy.hpp"
#include "transport/transfer.hpp"

namespace farandole::shm {

/// The sends of one rank: into its rings, through its entries and pipes. Sends of one operation
/// that have one source share a pipe, so that it is copied once, whoever reads it.
/// Threads   the engine's driver only.
class Outbox {
 public:
  /// `entries` [kEntryCount] and `pipes` [all_pipes_bytes] lie in `memory`. Without `peer_memory`
  /// every announced source is staged.
  Outbox(const Memory& memory, Entry* entries, std::byte* pipes, std::size_t ranks_on_host,
         bool peer_memory);

  void post(Peer& peer, Send& send);

  /// Writes what waited for a slot or an entry; true if anything moved.
  bool flush(Peer& peer);
  /// Stages blocks and finishes what the receivers have finished; true if anything moved.
  bool advance();

  /// Fails the sends of an operation. Receivers in the middle of one are told to stop.
  void cancel(const Peers& peers, OperationId operation);
  void peer_failed(Peer& peer);

  std::uint64_t sent_bytes() const { return sent_bytes_; }
  std::uint64_t sent_messages() const { return sent_messages_; }

 private:
  static constexpr std::size_t kNone = kEntryCount;
  static constexpr std::size_t kStepBytes = std::size_t{256} << 10;  // put by one advance()
  /// What an entry in use belongs to.
  struct Use {
    Peer* peer = nullptr;
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
    std::size_t end = 0;         // where the last message ended
    bool used = false;           // by any message yet
    SharedCopy shared_copy;      // mostly the same peers read it
  };

  bool write(Peer& peer, Send& send);
  std::optional<std::uint64_t> place_of(const Peer& peer, const Send& send) const;
  Announcement announce(Peer& peer, Send& send, std::optional<std::uint64_t> place);
  bool ended(Send& send);
  bool put(Peer& peer, Send& send);
  void share(Peer& peer, Send& send);
  bool write_target(Peer& peer, const Send& send, std::size_t offset, std::size_t bytes);
  void show_available(const Send& send);
  bool stage(Pipe& pipe, const Send& send);
  static void fill(Pipe& pipe, const Send& send, std::byte* target, std::size_t staged,
                   std::size_t bytes);
  bool has_free_block(const Pipe& pipe, std::size_t block) const;
  std::uint64_t consumed(const Pipe& pipe) const;
  bool join_pipe(const Send& send);
  void take_pipe(const Send& send);
  void use_pipe(std::size_t entry, std::size_t pipe);
  void free_entry(std::size_t index);

  const Memory& memory_;
  Entry* const entries_;
  const bool peer_memory_;
  const std::size_t in_slot_max_;
  std::vector<Use> uses_;  // by entry
  std::vector<Pipe> pipes_;
  std::size_t free_pipes_;
  std::vector<std::size_t> free_entries_;     // never grows past kEntryCount
  IntrusiveQueue<Send, Transfer> announced_;  // handle = entry, moved = bytes staged
  std::vector<std::size_t> lingering_;        // entries whose send has ended before the receiver
  std::uint64_t sent_bytes_ = 0;
  std::uint64_t sent_messages_ = 0;
  std::size_t step_left_ = 0;
  bool moved_ = false;
};

}  // namespace farandole::shm
