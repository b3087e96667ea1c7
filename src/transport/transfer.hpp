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

/// What a rank believes it is doing. It travels with every message, so that the first receiver
/// notices a disagreement and error messages can describe both sides.
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
///
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
  ErrorKind error = ErrorKind::kInternal;  // in kFailed: kMismatch or kRankFailed; else cancelled
  Signature seen;                          // valid in kFailed with kMismatch: the peer's signature
  Bytes seen_bytes;                        // likewise: the peer's number of bytes
  // For the transport while kActive.
  Transfer* next = nullptr;
  Bytes moved;
  std::uint64_t handle = 0;
  std::uint32_t phase = 0;

  bool lost_peer() const {
    return state == TransferState::kFailed && error == ErrorKind::kRankFailed;
  }

  // For transports: post() calls start() first; the other two end the transfer.
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

/// The destination of arriving bytes. With `consume` set the transport calls it once per piece;
/// without it the transport writes to `target`. Pieces come in any order; each offset is a multiple
/// of kPieceAlignment, and no byte comes twice. A piece may lie in the peer's memory.
struct Receive : Transfer {
  using Consume = void (*)(void* context, Bytes offset, const std::byte* data, Bytes bytes);
  static constexpr std::size_t kPieceAlignment = 16;  // bytes of the largest element
  std::byte* target = nullptr;
  Consume consume = nullptr;
  void* context = nullptr;
  /// The peer has read the target earlier in this operation, so the target's cache lines are in the
  /// peer's cache and slow for this rank to write.
  bool peer_has_read = false;
  /// The peer makes what it sends in this operation, so it has the bytes in its cache when they
  /// are complete. A transport may let the peer write the target.
  bool peer_has_made = false;
  /// Size of the whole buffer that the target is a part of; zero if the target is all of it. Tells
  /// a transport whether the buffer will stay in a cache.
  Bytes buffer_bytes;
  /// A receive posted earlier, which delivery must not run ahead of: never more bytes of this
  /// message are delivered than of that one. So the operand of a piece may be the result of the
  /// other receive's piece, read while it is in the cache. See Capabilities::follows.
  const Receive* behind = nullptr;

  /// Passes one piece to `consume` or copies it to `target`; does nothing for length 0.
  void deliver(Bytes offset, const std::byte* data, Bytes length);
};

struct Send : Transfer {
  using Along = void (*)(void* context, Bytes end);
  const std::byte* source = nullptr;
  /// The receive that fills the source, posted earlier: no more is sent than it has delivered, so
  /// that the bytes leave while they are in the cache. Null: the source is complete. See
  /// Capabilities::follows.
  const Receive* behind = nullptr;
  /// A transport that copies the source itself may call this after each piece, with the number of
  /// bytes that it has read so far: whatever else is made of the source then finds it in a cache.
  Along along = nullptr;
  void* context = nullptr;
  /// Set by a transport that leaves the source to its peer, and so never calls `along`.
  bool peer_reads = false;

  /// Bytes of the source that are there, from its beginning.
  Bytes available() const {
    const bool all = behind == nullptr || behind->state == TransferState::kDone;
    return all ? bytes : std::clamp(behind->moved, moved, bytes);
  }
};

}  // namespace farandole
