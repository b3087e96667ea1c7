// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "transport/shm/delivery.hpp"
#include "transport/shm/entries.hpp"
#include "transport/shm/layout.hpp"
#include "transport/shm/peer.hpp"
#include "transport/transfer.hpp"

// In place: the receiver reads the source where it lies, directly in the sender's registered memory
// or anywhere through the kernel. Each byte is copied once, or consumed without a copy.
namespace farandole::shm::in_place {

/// Sending: tells the peer how much of the source is there by now.
void show_available(Entries& entries, const Send& send);

/// The receiving side.
///
/// Threads   the engine's driver only.
class Receiver {
 public:
  explicit Receiver(Delivery& delivery)
      : delivery_(delivery), fetched_(std::make_unique<std::byte[]>(kPieceBytes)) {}

  /// Whether this rank can read all of the announced source.
  static bool reaches(const Peer& peer, const Receive& receive, const Announcement& announcement);

  /// Delivers the next piece, as far as the source is there.
  void advance(Peer& peer, Receive& receive);
  /// Delivers the next `bytes` of the source, at most a piece.
  void deliver(Peer& peer, Receive& receive, std::size_t bytes);

 private:
  static bool fetch(Peer& peer, const Receive& receive, std::byte* target, std::size_t bytes);

  Delivery& delivery_;
  std::unique_ptr<std::byte[]> fetched_;  // a piece, copied from the peer's ordinary memory
};

}  // namespace farandole::shm::in_place
