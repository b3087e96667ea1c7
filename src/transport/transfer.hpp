// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "farandole/result.hpp"
#include "farandole/types.hpp"

namespace farandole {

/// Which operation a message belongs to: the `sequence`-th on a communicator.
struct OperationId {
  std::uint32_t communicator = 0;
  std::uint32_t sequence = 0;
  bool operator==(const OperationId&) const = default;
};

/// What a receive matches on, together with the peer.
struct Tag {
  OperationId operation;
  std::uint32_t lane = 0;
  bool operator==(const Tag&) const = default;
};

/// What a rank believes it is doing; travels with every message, so that a disagreement is
/// noticed by the first receiver and both sides can be told in words.
struct Signature {
  std::uint8_t collective = 0;
  std::uint8_t dtype = 0;
  std::uint8_t reduction = 0;
  std::uint8_t algorithm = 0;
  std::int32_t root = -1;
  std::uint64_t count = 0;
  bool operator==(const Signature&) const = default;
};
static_assert(sizeof(Signature) == 16);

enum class TransferState : std::uint8_t { kIdle, kActive, kDone, kFailed };

/// One message in flight. The caller owns it and its memory; the transport links it into its own
/// lists from post() until the state is kDone or kFailed, so posting allocates nothing.
/// Threads   the engine's driver only.
struct Transfer {
  // Set by the caller.
  Rank peer;
  Tag tag;
  Signature signature;
  Bytes bytes;
  bool one_sends = false;  // only one rank of the operation sends, so the others have time to help
  // Set by the transport.
  TransferState state = TransferState::kIdle;
  ErrorKind error = ErrorKind::kInternal;  // in kFailed: kMismatch, kRankFailed; else cancelled
  Signature seen;                          // valid in kFailed with kMismatch: the peer's signature
  Bytes seen_bytes;                        // likewise: the peer's number of bytes
  // The transport's own while kActive.
  Transfer* next = nullptr;
  Bytes moved;
  std::uint64_t handle = 0;
  std::uint32_t phase = 0;

  bool lost_peer() const {
    return state == TransferState::kFailed && error == ErrorKind::kRankFailed;
  }

  // For transports: what post() does first, and the two ends.
  void start() {
    state = TransferState::kActive;
    error = ErrorKind::kInternal;
    next = nullptr;
    moved = Bytes{0};
    handle = 0;
    phase = 0;
  }
  void finish() { state = TransferState::kDone; }
  void fail(ErrorKind kind);
};

/// Where arriving bytes go. With `consume` set the transport calls it once per piece, in any
/// order of offsets, each offset a multiple of kPieceAlignment and no byte twice; the pieces may
/// lie in the peer's memory. Without it the transport writes to `target`.
struct Receive : Transfer {
  using Consume = void (*)(void* context, Bytes offset, const std::byte* data, Bytes bytes);
  static constexpr std::size_t kPieceAlignment = 16;  // the largest element
  std::byte* target = nullptr;
  Consume consume = nullptr;
  void* context = nullptr;
  /// The peer has read the target earlier in this operation, so that its lines are in the peer's
  /// cache and slow for this rank to write; a transport may let the peer write them.
  bool peer_has_read = false;
  /// Of the whole buffer that the target is a part of; zero if that is the target. Tells a
  /// transport whether it will stay in a cache.
  Bytes buffer_bytes;
  /// Never more of this message is delivered than of that one, which was posted before; so the
  /// operand of a piece may be what the other's piece made, while that is in the cache. See
  /// Capabilities::follows.
  const Receive* behind = nullptr;
  /// Sends are behind it, see Send::behind: a transport may deliver by small pieces and let these
  /// sends read each while it is in the first-level cache.
  bool leads_sends = false;

  /// Hands one piece on; nothing happens for length 0.
  void deliver(Bytes offset, const std::byte* data, Bytes length);
};

struct Send : Transfer {
  using Along = void (*)(void* context, Bytes end);
  const std::byte* source = nullptr;
  /// The receive that fills the source, posted before: no more is sent than was delivered there, so
  /// that it leaves while it is in the cache. None: the source is there. See Capabilities::follows.
  const Receive* behind = nullptr;
  /// A transport that copies the source itself calls it, with how far it has come, each time it has
  /// read kAlongBytes or less, if that is written through the caches: what else is made of the
  /// source finds it in the first-level cache.
  Along along = nullptr;
  void* context = nullptr;
  /// Set by a transport that leaves the source to its peer, and so calls nothing along.
  bool peer_reads = false;
  static constexpr std::size_t kAlongBytes = std::size_t{8} << 10;

  /// Of the source, from its beginning.
  Bytes available() const {
    const bool all = behind == nullptr || behind->state == TransferState::kDone;
    return all ? bytes : std::clamp(behind->moved, moved, bytes);
  }
};

}  // namespace farandole
