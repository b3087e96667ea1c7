// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/shm/entries.hpp"
#include "transport/shm/layout.hpp"
#include "transport/shm/peer.hpp"
#include "transport/shm/shared_copy.hpp"
#include "transport/transfer.hpp"

namespace farandole::shm {

// What an accepted receive keeps of its announcement: `handle` is where the source is, `phase` the
// index of the entry.
inline constexpr std::uint64_t kPut = Announcement::kStaged - 1;  // no source: the sender writes
inline constexpr std::uint32_t kShared = 1U << 31;  // a flag in `phase`: both ends move the message

inline bool is_shared(const Receive& receive) {
  return (receive.phase & kShared) != 0;
}
inline std::uint32_t entry_index(const Receive& receive) {
  return receive.phase & ~kShared;
}
inline Entry& entry_of(Peer& peer, const Receive& receive) {
  return peer.in_entries[entry_index(receive)];
}
/// Answers an announcement. An index that is out of range makes the peer corrupt.
void reply(Peer& peer, std::uint64_t entry, Reply answer);

/// Delivers arriving bytes to receives, whichever way they came.
///
/// Threads   the engine's driver only.
class Delivery {
 public:
  explicit Delivery(std::size_t ranks_on_host) : ranks_on_host_(ranks_on_host) {}

  /// Begins a step: one call of Inbox::advance().
  void begin_step() { step_.begin(kStepBytes); }
  bool has_moved() const { return step_.moved; }
  std::size_t left() const { return step_.left; }

  /// Copies the next bytes to the target, or passes them to Receive::consume.
  void deliver(const CopyPolicy& policy, Receive& receive, const std::byte* data,
               std::size_t bytes);
  /// Records that the next bytes are in the target already.
  void note(Receive& receive, std::size_t bytes) {
    step_.spend(bytes);
    receive.moved += Bytes{bytes};
  }
  void finish(Receive& receive);

  /// Bytes that the order between messages (Receive::behind) allows to deliver now.
  static std::size_t may_move(const Receive& receive);
  /// Bytes of one operation's buffers on all ranks of the host.
  std::size_t buffers_of_all(const Receive& receive) const;

  std::uint64_t received_bytes() const { return received_bytes_; }
  std::uint64_t received_messages() const { return received_messages_; }

 private:
  // One call of advance() takes about 100 us, so that small messages do not wait longer. It moves
  // only a quarter of kStepBytes where buffers stay in the caches: an allreduce of 2 MiB on two
  // ranks then takes 104 us instead of 109.
  static constexpr std::size_t kStepBytes = std::size_t{1} << 20;
  static constexpr std::size_t kCachedSteps = 4;

  const std::size_t ranks_on_host_;
  SharedCopy shared_copy_;
  Step step_;
  std::uint64_t received_bytes_ = 0;
  std::uint64_t received_messages_ = 0;
};

}  // namespace farandole::shm
