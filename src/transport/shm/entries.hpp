// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "transport/shm/layout.hpp"
#include "transport/shm/peer.hpp"

namespace farandole::shm {

/// How much one call of advance() may still move, and whether it has moved anything.
struct Step {
  std::size_t left = 0;  // bytes
  bool moved = false;

  void begin(std::size_t bytes) { *this = {bytes, false}; }
  void spend(std::size_t bytes) {
    left -= std::min(left, bytes);
    moved |= bytes > 0;
  }
};

/// The entries of one rank's large messages, and which peer each belongs to.
///
/// Threads   the engine's driver only.
/// Blocking  Only the constructor allocates.
class Entries {
 public:
  /// `entries` [kEntryCount] lie in the rank's Memory.
  explicit Entries(Entry* entries) : entries_(entries), peers_(kEntryCount) {
    for (std::size_t i = kEntryCount; i > 0; --i) free_.push_back(i - 1);
  }

  bool all_in_use() const { return free_.empty(); }
  Entry& operator[](std::size_t index) { return entries_[index]; }
  const Entry& operator[](std::size_t index) const { return entries_[index]; }
  Peer& peer_of(std::size_t index) const { return *peers_[index]; }

  /// Takes a blank entry, of which one must be free, for a message with `available` bytes there.
  /// Returns the index of the entry.
  std::size_t take(Peer& peer, Bytes available) {
    const std::size_t index = free_.back();
    free_.pop_back();
    peers_[index] = &peer;
    Entry& entry = entries_[index];
    entry.cancelled.store(0, std::memory_order_relaxed);
    entry.pipe.store(0, std::memory_order_relaxed);
    entry.produced.store(0, std::memory_order_relaxed);
    entry.consumed.store(0, std::memory_order_relaxed);
    entry.reply.store(Reply::kNone, std::memory_order_relaxed);
    entry.claims.clear();
    entry.available.store(available.value(), std::memory_order_relaxed);
    return index;
  }

  void give_back(std::size_t index) {
    if (!peers_[index]->failed) {
      free_.push_back(index);
    } else {
      cancel(index);
    }
  }

  /// Tells the receiver that the message is cancelled. A peer that is believed dead may only be
  /// slow, and may still read and reply: it must not take what it reads for the message, and its
  /// entry is never used again.
  void cancel(std::size_t index) { publish(entries_[index].cancelled, std::uint32_t{1}); }

 private:
  Entry* const entries_;
  std::vector<Peer*> peers_;       // by entry
  std::vector<std::size_t> free_;  // never grows past kEntryCount
};

}  // namespace farandole::shm
