// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "farandole/types.hpp"
#include "transport/queue.hpp"
#include "transport/transfer.hpp"

namespace farandole {

/// The description of a message, which comes before its payload.
struct Envelope {
  Rank peer;
  Tag tag;
  Signature signature;
  Bytes bytes;
};

/// A message that came before its receive. The Matcher owns it and its payload.
struct Arrival {
  Envelope envelope;
  std::byte* payload = nullptr;  // room for the bytes that set_aside() was asked to store
  std::uint64_t handle = 0;      // for the transport, such as where the payload waits
  Bytes moved;                   // for the transport, such as how much of the payload is stored
  Arrival* next = nullptr;
  std::unique_ptr<std::byte[]> large;  // holds the payload when it exceeds a pool block
  std::byte* block = nullptr;          // this node's block of the pool
};

/// Pairs arriving messages with posted receives, per peer and tag, first in first out.
///
/// Every transport uses it in the same way:
///   a receive is posted    post(); an Arrival that it returns is delivered and released
///   a message arrives      arrive(); on kEarly set_aside() and fill the payload
/// A receive whose bytes or signature differ from the message's fails with kMismatch; the transport
/// discards the payload.
///
/// Threads   the engine's driver only.
/// Blocking  allocates only when more messages are early than the pool has nodes, or when an early
///           payload is larger than a block of the pool.
class Matcher {
 public:
  struct Pool {
    std::size_t arrival_count = 256;
    Bytes block{4096};  // payload bytes that each of them has room for
  };
  Matcher(std::size_t rank_count, Pool pool);
  ~Matcher();
  Matcher(const Matcher&) = delete;
  Matcher& operator=(const Matcher&) = delete;

  /// Takes a receive. Returns the early message that it pairs with; the caller delivers it
  /// (receive.state is kActive) or discards it (kFailed, kMismatch), and then releases it. Without
  /// one the receive waits here, or has failed because its peer is gone or its operation is
  /// cancelled.
  Arrival* post(Receive& receive);

  enum class Fate : std::uint8_t {
    kMatched,    // Deliver the payload to `receive`, which has left the matcher.
    kEarly,      // No receive yet: set_aside().
    kDiscarded,  // Cancelled, mismatched or from a failed peer: drop the payload.
  };
  struct Verdict {
    Fate fate;
    Receive* receive = nullptr;
  };
  Verdict arrive(const Envelope& envelope);

  /// Whether receives wait here for messages of the peer.
  bool awaits(Rank peer) const { return !of(peer).posted.empty(); }

  /// Keeps an early message, with room for `stored` bytes of payload (0: they wait elsewhere).
  Arrival& set_aside(const Envelope& envelope, Bytes stored);
  void release(Arrival& arrival);

  /// Fails the operation's receives and discards its messages from now on, as long as it is among
  /// the last kRemembered cancelled operations. Returns its early messages, linked by `next`; the
  /// caller tells their senders and releases them.
  Arrival* cancel(OperationId operation);
  bool cancelled(OperationId operation) const {
    return cancelled_count_ > 0 && remembers(operation);
  }
  static constexpr std::size_t kRemembered = 256;

  /// Fails the peer's receives, now and later, with kRankFailed. Returns its early messages as
  /// cancel() does.
  Arrival* peer_failed(Rank peer);
  bool failed(Rank peer) const { return of(peer).failed; }

 private:
  using Arrivals = IntrusiveQueue<Arrival>;
  struct Peer {
    IntrusiveQueue<Receive, Transfer> posted;
    Arrivals early;
    bool failed = false;
  };
  struct Slab {
    std::unique_ptr<Arrival[]> arrivals;
    std::unique_ptr<std::byte[]> blocks;
  };
  Peer& of(Rank peer) { return peers_[static_cast<std::size_t>(peer.value())]; }
  const Peer& of(Rank peer) const { return peers_[static_cast<std::size_t>(peer.value())]; }
  void grow();
  bool remembers(OperationId operation) const;
  static bool agree(Receive& receive, const Envelope& envelope);

  const Pool pool_;
  std::vector<Peer> peers_;
  std::vector<Slab> slabs_;
  Arrivals free_;
  std::array<OperationId, kRemembered> remembered_{};
  std::size_t cancelled_count_ = 0;  // in all; remembered_ has the last kRemembered of them
};

}  // namespace farandole
