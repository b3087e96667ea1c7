// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/matcher.hpp"
#include "transport/queue.hpp"
#include "transport/shm/delivery.hpp"
#include "transport/shm/in_place.hpp"
#include "transport/shm/layout.hpp"
#include "transport/shm/peer.hpp"
#include "transport/shm/places.hpp"
#include "transport/shm/put.hpp"
#include "transport/transfer.hpp"

namespace farandole::shm {

/// The receives of one rank: reads the rings of its peers, pairs messages with receives, and moves
/// each message the way that suits it (eager, in_place, staged, put).
///
/// Threads   the engine's driver only.
class Inbox {
 public:
  Inbox(std::size_t rank_count, const Peers& peers, const Places& places);

  void post(Receive& receive);

  /// Reads the ring from the peer; true if anything was there.
  bool drain(Peer& peer);
  /// Delivers pieces of announced messages for about 100 us; true if anything moved.
  bool advance();

  /// Ends the operation's receives. True once no peer writes into the operation's memory any more;
  /// until then call it again.
  bool cancel(OperationId operation);
  bool cancelled(OperationId operation) const { return matcher_.cancelled(operation); }
  void peer_failed(Peer& peer);

  std::uint64_t received_bytes() const { return delivery_.received_bytes(); }
  std::uint64_t received_messages() const { return delivery_.received_messages(); }

 private:
  static constexpr int kDrainedMax = 64;  // messages, by one drain()

  void read(Peer& peer, const Slot& slot);
  void take(Peer& peer, Receive& receive, Kind kind, const std::byte* payload);
  static void discard(Peer& peer, Kind kind, const std::byte* payload);
  void discard_all(Arrival* arrivals);
  void begin(Peer& peer, Receive& receive, const Announcement& announcement);
  bool ended(Receive& receive);
  void move_piece(Peer& peer, Receive& receive);

  const Peers& peers_;
  Matcher matcher_;
  Delivery delivery_;
  in_place::Receiver in_place_;
  put::Receiver put_;
  IntrusiveQueue<Receive, Transfer> accepted_;  // see delivery.hpp for handle and phase
};

}  // namespace farandole::shm
