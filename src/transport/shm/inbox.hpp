// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "device/cpu/memory.hpp"
#include "transport/matcher.hpp"
#include "transport/queue.hpp"
#include "transport/shm/layout.hpp"
#include "transport/shm/outbox.hpp"
#include "transport/shm/peer.hpp"
#include "transport/shm/shared_copy.hpp"
#include "transport/transfer.hpp"

namespace farandole::shm {

/// The receives of one rank: out of its peers' rings, sources and pipes. Has the outbox send on
/// what they deliver to sends behind them. Threads   the engine's driver only.
class Inbox {
 public:
  Inbox(std::size_t rank_count, const Peers& peers, const Memory& memory, Outbox& outbox);

  void post(Receive& receive);

  /// Reads the ring from the peer; true if anything was there.
  bool drain(Peer& peer);
  /// Delivers pieces of announced messages, about kStepBytes in all, a quarter of it where buffers
  /// stay in the caches; true if anything moved.
  bool advance();

  /// True once no peer writes into the operation's memory any more; until then call it again.
  bool cancel(OperationId operation);
  bool cancelled(OperationId operation) const { return matcher_.cancelled(operation); }
  void peer_failed(Peer& peer);

  std::uint64_t received_bytes() const { return received_bytes_; }
  std::uint64_t received_messages() const { return received_messages_; }

 private:
  // One call of advance() takes some 100 us, so that small messages are not kept waiting; a quarter
  // where buffers stay in the caches: allreduce of 2 MiB, two ranks, 109 and 104 us.
  static constexpr std::size_t kStepBytes = std::size_t{1} << 20;
  static constexpr std::size_t kCachedSteps = 4;
  // A sum is made and sent on by so much at a time, which then is in the first-level cache.
  static constexpr std::size_t kSentOnBytes = std::size_t{16} << 10;
  static_assert(kSentOnBytes % Receive::kPieceAlignment == 0);
  // What is larger has left the caches when it is written, unless it is being made meanwhile.
  static constexpr std::size_t kPutBytesMax = std::size_t{1} << 20;
  static constexpr int kDrainedMax = 64;                            // messages, by one drain()
  static constexpr std::uint64_t kPut = Announcement::kStaged - 1;  // no source, in a handle
  static constexpr std::uint32_t kShared = 1U << 31;                // in a phase, beside the entry

  // From so much on, on all ranks together, targets are written as what lies in no cache: by their
  // owner, and by a peer, which has just read them. Measured with 32 MiB of shared cache.
  static constexpr std::size_t kCachedMax = std::size_t{16} << 20;
  static constexpr std::size_t kPutCachedMax = std::size_t{48} << 20;
  // From so much on they are not in the second-level caches, and are asked for ahead. Measured with
  // second-level caches of 1 MiB.
  static constexpr std::size_t kNearMax = std::size_t{2} << 20;
  // Pieces that a rank has read, one of each rank's input, and still has in its own cache when
  // their sum is made. Measured with second-level caches of 1 MiB: two and three ranks have, four
  // do not.
  static constexpr std::size_t kAtHandMax = std::size_t{192} << 10;

  bool may_stay(const Peer& peer, const Slot& slot) const;
  void read(Peer& peer, const Slot& slot);
  void take(Peer& peer, Receive& receive, Kind kind, const std::byte* payload);
  void discard(Peer& peer, Kind kind, const std::byte* payload);
  void discard_all(Arrival* arrivals);
  void begin(Peer& peer, Receive& receive, const Announcement& announcement);
  bool ended(Receive& receive);
  void deliver_in_place(Peer& peer, Receive& receive);
  void deliver_shared(Peer& peer, Receive& receive);
  void deliver_from_source(Peer& peer, Receive& receive, std::size_t bytes);
  static bool fetch(Peer& peer, const Receive& receive, std::byte* target, std::size_t bytes);
  void deliver_staged(Peer& peer, Receive& receive);
  static Entry& entry_of(Peer& peer, const Receive& receive);
  static bool is_shared(const Receive& receive) { return (receive.phase & kShared) != 0; }
  static bool is_writing(Peer& peer, const Receive& receive);
  static void withdraw(Peer& peer, const Receive& receive);
  bool lets_put(Peer& peer, const Receive& receive, const Announcement& announcement);
  bool lets_share(Peer& peer, const Receive& receive, const Announcement& announcement);
  bool show_target(Peer& peer, const Receive& receive, std::size_t index, bool to_memory,
                   Reply what);
  static std::size_t may_move(const Receive& receive);
  std::size_t buffers_of_all(const Receive& receive) const;
  bool puts_to_memory(const Receive& receive) const;
  void deliver(Receive& receive, const std::byte* data, std::size_t bytes);
  void consume(Receive& receive, const std::byte* data, std::size_t bytes, std::size_t piece_bytes);
  void finish(Receive& receive);
  static void reply(Peer& peer, std::uint64_t entry, Reply reply);

  const Peers& peers_;
  const Memory& memory_;
  Outbox& outbox_;
  Matcher matcher_;
  SharedCopy shared_copy_;
  std::unique_ptr<std::byte[]> fetched_;        // a piece of the peer's memory
  IntrusiveQueue<Receive, Transfer> accepted_;  // handle = source, phase = entry
  std::size_t step_left_ = 0;
  bool moved_ = false;
  std::uint64_t received_bytes_ = 0;
  std::uint64_t received_messages_ = 0;
};

}  // namespace farandole::shm
