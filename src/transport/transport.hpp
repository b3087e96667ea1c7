// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "base/clock.hpp"
#include "bootstrap/member.hpp"
#include "farandole/result.hpp"
#include "farandole/types.hpp"
#include "transport/transfer.hpp"

namespace farandole {

/// What a transport can do. The engine and the front end read it.
struct Capabilities {
  std::string_view name;     // in statistics and messages
  bool peer_memory = false;  // a receive may read registered memory of the peer in place
  bool all_memory = false;   // or any other memory of it; known once connected
  // Receive::behind and Send::behind are obeyed for messages above follow_bytes; what a receive has
  // moved of such a message is its beginning.
  bool follows = false;
  Bytes follow_bytes;
};

/// Bytes and messages counted since the start, for reports.
struct TransportCounters {
  std::uint64_t sent_bytes = 0;
  std::uint64_t sent_messages = 0;
  std::uint64_t received_bytes = 0;
  std::uint64_t received_messages = 0;
};

/// A channel of messages between this rank and each peer of the job. Ranks are world ranks.
///
/// Threads   connect() and add_peer() from any thread; register_memory() and release_memory()
///           before there is an engine, or from its driver; everything else from the engine's
///           driver, one thread at a time.
/// Order     Two messages to one peer with one tag match in the order posted. Messages with
///           different tags never wait for each other: one whose receive is not posted yet is
///           set aside.
/// Memory    Source, target and operand stay valid, and the source unwritten, until the state of
///           the transfer is kDone or kFailed and, after cancel(), until cancel() returned true.
/// Match     A message whose bytes or signature differ from its receive fails the receive with
///           kMismatch; the payload is discarded, the send counts as done.
/// Errors    A peer that is gone fails its transfers with kRankFailed, now and later; transfers
///           with other peers go on.
/// Blocking  Only connect() and add_peer() block. post() and progress() do not allocate, lock or
///           log, except to set aside more unexpected messages than the preallocated pool holds.
class Transport {
 public:
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  virtual ~Transport() = default;

  virtual const Capabilities& capabilities() const = 0;
  virtual TransportCounters counters() const = 0;

  /// Connects to one peer: both sides call it, and each waits for the other. Idempotent. The record
  /// may be of a rank that was not there when the transport was made. A rank that adds several
  /// peers adds them in ascending order, and so do all others.
  ///
  /// Errors    kTimedOut or kRankFailed naming the peer; kUnsupported if it cannot be reached this
  ///           way; kInvalidArgument if the transport was made for fewer ranks.
  virtual Result<void> add_peer(const Member& peer, Deadline deadline) = 0;

  /// Adds peers that were there when the transport was made, in any order. Errors as in add_peer().
  virtual Result<void> connect(std::span<const Rank> peers, Deadline deadline) = 0;

  /// Has transfers from and to this memory take the transport's fastest way from now on. True if
  /// the transport has such a way for this memory. The memory must stay valid until it is released,
  /// and no transfer may be using it then.
  virtual Result<bool> register_memory(std::span<std::byte>) { return false; }
  virtual void release_memory(std::span<std::byte>) {}

  virtual void post(Send& send) = 0;
  virtual void post(Receive& receive) = 0;

  /// Moves what can be moved; true if anything moved.
  virtual bool progress() = 0;

  /// Ends every transfer of an operation on this rank, posted or yet to arrive: states become
  /// kFailed, and messages that arrive later are discarded (the last 256 such operations are
  /// remembered). Returns true once no memory of the operation is touched any more; until then call
  /// progress() and cancel() again.
  virtual bool cancel(OperationId operation) = 0;

  /// The control plane has reported that the peer is gone.
  virtual void peer_failed(Rank peer) = 0;

  /// The peer left on purpose: what it sent still arrives, but it will not connect any more.
  virtual void peer_left(Rank) {}

  /// A descriptor that polls readable when progress() may have work, or -1 when the engine's
  /// doorbell is rung instead.
  virtual int wait_fd() const { return -1; }
};

}  // namespace farandole
