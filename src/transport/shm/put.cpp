// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/put.hpp"

#include <algorithm>

namespace farandole::shm::put {

bool Sender::advance(Send& send, Step& step) {
  const std::size_t moved = send.moved.value();
  const std::size_t piece = std::min({send.available().value() - moved, kPieceBytes, step.left});
  // Waits for a whole piece: a call of the kernel is expensive, and the source is filled meanwhile.
  const bool is_last = moved + piece == send.bytes.value();
  if (is_private(observe(entries_[send.handle].target)) && piece < kPieceBytes && !is_last) {
    return false;
  }
  if (!write_target(send, moved, piece, step)) return false;
  send.moved += Bytes{piece};
  return send.moved == send.bytes;
}

void Sender::advance_shared(const Send& send, Step& step) {
  if (step.left == 0) return;
  Entry& entry = entries_[send.handle];
  const auto piece = entry.claims.take_last(piece_count(send.bytes));
  if (!piece) return;
  const std::size_t offset = *piece * kPieceBytes;
  const std::size_t bytes = std::min(send.bytes.value() - offset, kPieceBytes);
  if (!write_target(send, offset, bytes, step)) return;
  publish(entry.produced, entry.produced.load(std::memory_order_relaxed) + 1);
  entries_.peer_of(send.handle).ring();
}

/// Copies `bytes` of the source to the same offset of the target; false if that fails.
bool Sender::write_target(const Send& send, std::size_t offset, std::size_t bytes, Step& step) {
  const Entry& entry = entries_[send.handle];
  Peer& peer = entries_.peer_of(send.handle);
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
    peer.policy.to_target(observe(entry.lines), peer.put_copy, target + offset, source, bytes);
  }
  step.spend(bytes);
  return true;
}

bool Receiver::ask(Peer& peer, const Receive& receive, const Announcement& announcement) const {
  if (!receive.peer_has_made || receive.consume != nullptr) return false;
  if (!peer.policy.puts(receive.bytes.value(), announcement.filling != 0)) return false;
  const auto lines =
      peer.policy.put_lines(delivery_.buffers_of_all(receive), receive.peer_has_read);
  return show_target(peer, receive, announcement.entry, lines, Reply::kPut);
}

bool Receiver::ask_to_share(Peer& peer, const Receive& receive,
                            const Announcement& announcement) const {
  const bool pays = receive.one_sends && receive.bytes.value() >= peer.policy.share_min();
  if (!pays || receive.consume != nullptr || announcement.filling != 0) return false;
  const auto lines = peer.policy.put_lines(delivery_.buffers_of_all(receive), false);
  return show_target(peer, receive, announcement.entry, lines, Reply::kShare);
}

bool Receiver::show_target(Peer& peer, const Receive& receive, std::size_t index, TargetLines lines,
                           Reply what) const {
  const auto place = places_.of(peer, receive.target, receive);
  if (!place) return false;
  Entry& entry = peer.in_entries[index];
  entry.target.store(*place, std::memory_order_relaxed);
  entry.lines.store(lines, std::memory_order_relaxed);
  reply(peer, index, what);
  return true;
}

void Receiver::advance(Peer& peer, Receive& receive) {
  if (observe(entry_of(peer, receive).produced) != 0) receive.moved = receive.bytes;
}

void Receiver::advance_shared(Peer& peer, Receive& receive) {
  const std::size_t piece = std::min((receive.bytes - receive.moved).value(), kPieceBytes);
  const bool may = Delivery::may_move(receive) >= piece;
  if (may && entry_of(peer, receive).claims.take_first(piece_count(receive.bytes))) {
    in_place_.deliver(peer, receive, piece);
  }
  if (!is_writing(peer, receive)) receive.moved = receive.bytes;
}

bool Receiver::is_writing(Peer& peer, const Receive& receive) {
  const Entry& entry = entry_of(peer, receive);
  if (observe(entry.cancelled) != 0) return false;
  const std::uint64_t produced = observe(entry.produced);
  if (is_shared(receive)) {
    return produced != entry.claims.of_sender() ||
           !entry.claims.all_taken(piece_count(receive.bytes));
  }
  return receive.handle == kPut && produced == 0;
}

void Receiver::withdraw(Peer& peer, const Receive& receive) {
  Entry& entry = entry_of(peer, receive);
  if (is_shared(receive)) {
    entry.claims.take_rest(piece_count(receive.bytes));
  } else if (receive.handle == kPut) {
    publish(entry.reply, Reply::kWithdrawn);
    peer.ring();
  }
}

}  // namespace farandole::shm::put
