// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "device/cpu/memory.hpp"
#include "transport/queue.hpp"
#include "transport/shm/entries.hpp"
#include "transport/shm/layout.hpp"
#include "transport/shm/peer.hpp"
#include "transport/shm/places.hpp"
#include "transport/shm/put.hpp"
#include "transport/shm/staged.hpp"
#include "transport/transfer.hpp"

namespace farandole::shm {

/// The sends of one rank: writes their slots into the rings, and moves each message the way that
/// suits it (eager, in_place, staged, put).
///
/// Threads   the engine's driver only.
class Outbox {
 public:
  /// `entries` [kEntryCount] and `pipes` [all_pipes_bytes] lie in `memory`.
  Outbox(const Memory& memory, const Places& places, Entry* entries, std::byte* pipes,
         std::size_t ranks_on_host);

  void post(Peer& peer, Send& send);

  /// Writes the slots of sends that waited for room or for an entry; true if anything moved.
  bool flush(Peer& peer);
  /// Moves announced messages and finishes those that their receivers have finished; true if
  /// anything moved.
  bool advance();

  /// Fails the sends of an operation. Receivers in the middle of one are told to stop.
  void cancel(const Peers& peers, OperationId operation);
  void peer_failed(Peer& peer);

  std::uint64_t sent_bytes() const { return sent_bytes_; }
  std::uint64_t sent_messages() const { return sent_messages_; }

 private:
  static constexpr std::size_t kStepBytes = std::size_t{256} << 10;  // put in one advance()

  bool write(Peer& peer, Send& send);
  Announcement announce(Peer& peer, Send& send, std::optional<std::uint64_t> place);
  bool ended(Send& send);
  bool advance_put(Send& send, Reply reply);
  bool advance_read(Send& send, Reply reply);
  void free_entry(std::size_t index);

  const Places& places_;
  Entries entries_;
  staged::Sender staged_;
  put::Sender put_;
  IntrusiveQueue<Send, Transfer> announced_;  // handle = entry, moved = bytes staged or put
  std::vector<std::size_t> lingering_;  // entries whose send ended before the receiver finished
  Step step_;
  std::uint64_t sent_bytes_ = 0;
  std::uint64_t sent_messages_ = 0;
};

}  // namespace farandole::shm
