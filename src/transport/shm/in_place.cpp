// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/in_place.hpp"

#include <algorithm>

namespace farandole::shm::in_place {

void show_available(Entries& entries, const Send& send) {
  Entry& entry = entries[send.handle];
  const std::uint64_t available = send.available().value();
  if (available <= entry.available.load(std::memory_order_relaxed)) return;
  publish(entry.available, available);
  entries.peer_of(send.handle).ring();
}

bool Receiver::reaches(const Peer& peer, const Receive& receive, const Announcement& announcement) {
  if (is_private(announcement.source)) return peer.process.reached();
  return peer.mapping.at<std::byte>(announcement.source, receive.bytes.value()) != nullptr;
}

void Receiver::advance(Peer& peer, Receive& receive) {
  const std::size_t moved = receive.moved.value();
  const std::uint64_t available = observe(entry_of(peer, receive).available);
  std::size_t piece = std::min({Delivery::may_move(receive), kPieceBytes, delivery_.left(),
                                std::max<std::size_t>(available, moved) - moved});
  if (moved + piece < receive.bytes.value()) piece -= piece % Receive::kPieceAlignment;
  if (piece > 0) deliver(peer, receive, piece);
}

void Receiver::deliver(Peer& peer, Receive& receive, std::size_t bytes) {
  const std::uint64_t place = receive.handle + receive.moved.value();  // reaches() has checked it
  if (!is_private(place)) {
    delivery_.deliver(peer.policy, receive, peer.mapping.at<std::byte>(place, bytes), bytes);
  } else if (receive.consume != nullptr) {
    if (!fetch(peer, receive, fetched_.get(), bytes)) return;
    delivery_.deliver(peer.policy, receive, fetched_.get(), bytes);
  } else if (fetch(peer, receive, receive.target + receive.moved.value(), bytes)) {
    delivery_.note(receive, bytes);
  }
}

/// Copies the next piece of a source that is not in the peer's Memory; false if that fails.
bool Receiver::fetch(Peer& peer, const Receive& receive, std::byte* target, std::size_t bytes) {
  const std::uint64_t source = receive.handle - kPrivate + receive.moved.value();
  // The owner of a cancelled message may have freed the source: that does not make it corrupt.
  const bool corrupt = peer.corrupt;
  const bool fetched = peer.copy_from(source, target, bytes);
  if (observe(entry_of(peer, receive).cancelled) != 0) peer.corrupt = corrupt;
  return fetched;
}

}  // namespace farandole::shm::in_place
