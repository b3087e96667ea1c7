// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "transport/matcher.hpp"
#include "transport/queue.hpp"
#include "transport/sim/network.hpp"
#include "transport/transport.hpp"

namespace farandole::sim {

/// A transport over a simulated Network, for tests of the layers above transports.
///
/// Short messages travel with their bytes. The bytes of a longer message leave once it has met its
/// receive, in pieces of random length, and no more than a few pieces ahead of the receiver.
/// Threads, order, memory, match, errors, blocking: as Transport says.
class SimTransport final : public Transport {
 public:
  struct Options {
    Bytes eager_bytes_max{1024};  // travel with their bytes; at most Parcel::kRoom
    Bytes piece_max{Parcel::kRoom};
    std::uint32_t pieces_ahead = 4;
    bool follows = true;             // Capabilities::follows, above eager_bytes_max
    std::uint32_t late_cancels = 0;  // first calls of cancel() that report memory in use
    Matcher::Pool pool{16, Bytes{Parcel::kRoom}};
  };

  /// `network` outlives the transport.
  SimTransport(Rank self, Network& network, Options options);
  ~SimTransport() override;

  const Capabilities& capabilities() const override { return capabilities_; }
  TransportCounters counters() const override { return counters_; }
  Result<void> add_peer(const Member& peer, Deadline deadline) override;
  Result<void> connect(std::span<const Rank> peers, Deadline deadline) override;
  void post(Send& send) override;
  void post(Receive& receive) override;
  bool progress() override;
  bool cancel(OperationId operation) override;
  void peer_failed(Rank peer) override;

  /// Breaks the connection with a peer: its transfers fail as after peer_failed(); nobody is told.
  void break_connection(Rank peer) { peer_failed(peer); }
  /// Whether the transport refers to no transfer.
  bool idle() const;

 private:
  template <class T>
  using Queue = IntrusiveQueue<T, Transfer>;

  Parcel& reply(Parcel::Kind kind, Rank to, const Tag& tag, std::uint64_t message);
  void answer(Parcel::Kind kind, const Parcel& parcel) {
    network_.put(reply(kind, parcel.from, parcel.tag, parcel.message));
  }
  void announce(Send& send, Parcel::Kind kind, Bytes length);
  bool push(Send& send);
  void arrive(Parcel& parcel);
  void arrive_message(Parcel& parcel);
  void take_whole(Receive& receive, const std::byte* data);
  void start(Receive& receive, Rank from, std::uint64_t message);
  bool deliver(Parcel& parcel);
  bool deliver_held();
  Send* find_send(const Parcel& parcel);
  Receive* find_receive(const Parcel& parcel);
  void drop(Arrival* first, bool answered);
  template <class Predicate>
  void end(Predicate unwanted, ErrorKind kind);

  const Rank self_;
  Network& network_;
  const Options options_;
  const Capabilities capabilities_;
  Matcher matcher_;
  Queue<Send> sends_;            // whose bytes have not all left
  Queue<Receive> receives_;      // that have met their message
  IntrusiveQueue<Parcel> held_;  // pieces that may not be delivered yet
  std::uint64_t last_message_ = 0;
  std::uint32_t late_cancels_ = 0;
  TransportCounters counters_;
};

}  // namespace farandole::sim
