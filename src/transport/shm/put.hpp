// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/shm/delivery.hpp"
#include "transport/shm/entries.hpp"
#include "transport/shm/in_place.hpp"
#include "transport/shm/layout.hpp"
#include "transport/shm/peer.hpp"
#include "transport/shm/places.hpp"
#include "transport/transfer.hpp"

// Put: the receiver tells the sender where its target is, and the sender writes it. If only one
// rank sends, the sender may write only the end, while the receiver reads the beginning in place.
namespace farandole::shm::put {

/// The sending side.
///
/// Threads   the engine's driver only.
class Sender {
 public:
  explicit Sender(Entries& entries) : entries_(entries) {}

  /// Writes the next piece of the message into the receiver's memory; true once all is there.
  bool advance(Send& send, Step& step);
  /// Writes the last piece that neither end has taken. The receiver may still be reading others
  /// after that, so the source is needed until the receiver has finished.
  void advance_shared(const Send& send, Step& step);

 private:
  bool write_target(const Send& send, std::size_t offset, std::size_t bytes, Step& step);

  Entries& entries_;
};

/// The receiving side.
///
/// Threads   the engine's driver only.
class Receiver {
 public:
  Receiver(const Places& places, const Delivery& delivery, in_place::Receiver& in_place)
      : places_(places), delivery_(delivery), in_place_(in_place) {}

  /// Asks the sender to write the target, if that is better; true if it was asked.
  bool ask(Peer& peer, const Receive& receive, const Announcement& announcement) const;
  /// Asks the sender to write the end of the target, likewise.
  bool ask_to_share(Peer& peer, const Receive& receive, const Announcement& announcement) const;

  /// Finds out whether the sender has written the target, which completes the message.
  static void advance(Peer& peer, Receive& receive);
  /// Reads the next piece unless the sender has taken it. The message is complete once all pieces
  /// are taken and the sender has written its own.
  void advance_shared(Peer& peer, Receive& receive);

  /// Whether the sender was asked to write the target and may still write it.
  static bool is_writing(Peer& peer, const Receive& receive);
  /// Has the sender stop writing the target after the piece that it is writing.
  static void withdraw(Peer& peer, const Receive& receive);

 private:
  bool show_target(Peer& peer, const Receive& receive, std::size_t entry, TargetLines lines,
                   Reply what) const;

  const Places& places_;
  const Delivery& delivery_;
  in_place::Receiver& in_place_;
};

}  // namespace farandole::shm::put
