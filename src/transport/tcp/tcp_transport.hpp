// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "transport/tcp/connector.hpp"
#include "transport/tcp/link.hpp"
#include "transport/tcp/poller.hpp"
#include "transport/transport.hpp"

namespace farandole::tcp {

/// Messages over stream sockets, one or more per pair of ranks.
///
/// Protocol  (frame.hpp has the bytes.) A message begins with a kMessage frame that carries its
///           envelope and its head. The head is the first eager_bytes_max bytes of the message, but
///           at most 128 KiB unless two ranks exchange messages, and at most 32 KiB to another
///           host. A message no longer than its head is complete with this frame. The receiver
///           pairs messages with receives in the order in which they arrive on the first
///           connection, and sets aside the head of an early one. It answers kReady as soon as the
///           receive and the header are there; then the rest follows in kData frames. If the rest
///           is not wanted, the answer is kRefuse and the send is done. The connections of a pair
///           share the work as link.hpp says. The head travels while the answer does, so a long
///           message whose receive is posted rarely waits for the round trip, and nothing needs to
///           be promised before the order is known.
/// Sends     are done once the kernel has all their bytes.
/// cancel()  returns true at once: a frame that is partly sent is finished from a copy. Peers are
///           not told; a receive that waits for a cancelled send stays active until its own
///           operation is cancelled, as if the send had never been posted.
/// Broken    A connection that ends, fails, or carries bytes that are no valid frame is closed, and
///           on_link_lost is called. That names no culprit: transfers stay active until
///           peer_failed() or cancel().
/// Ending    The destructor closes the sockets. What was sent before still arrives if every message
///           of the peer has been received; else the system may drop it.
/// Sleeping  post() only queues: call progress() until it returns false before sleeping on
///           wait_fd().
/// Threads, memory, match, blocking: as Transport says.
class TcpTransport final : public Transport {
 public:
  struct Options {
    int connection_count = 4;  // per pair of ranks, 1 to 64, equal on all ranks
    /// Limit of connection_count between ranks of one host, where a second connection for data
    /// makes nothing faster: allgather of 32 MiB on two ranks took 9.4 ms with four
    /// connections, 8.8 with two; of 512 KiB 94 and 83 us.
    int near_connection_count_max = 2;
    Bytes eager_bytes_max{512 << 10};  // a multiple of 16, up to kHeadBytesMax
    Bytes segment_bytes{256 << 10};    // of a data frame, half more where nothing comes in; a
                                       // multiple of 16, up to kSegmentBytesMax
    /// Called in progress(), at most once per peer, and not after peer_failed() of that peer.
    std::function<void(Rank)> on_link_lost;
  };

  /// `rank_count`: as many as there may ever be. `connector` outlives the transport.
  ///
  /// Errors    kInvalidArgument naming the option, kInternal when the system refuses.
  static Result<std::unique_ptr<TcpTransport>> create(Rank self, int rank_count,
                                                      Connector& connector, Options options);
  /// The same with a connector that the transport owns.
  static Result<std::unique_ptr<TcpTransport>> create(Rank self, int rank_count,
                                                      std::unique_ptr<Connector> connector,
                                                      Options options);
  ~TcpTransport() override;

  const Capabilities& capabilities() const override { return capabilities_; }
  TransportCounters counters() const override { return core_.counters; }
  Result<void> add_peer(const Member& peer, Deadline deadline) override;
  Result<void> connect(std::span<const Rank> peers, Deadline deadline) override;
  void post(Send& send) override { link(send.peer).post(send); }
  void post(Receive& receive) override { link(receive.peer).post(receive); }
  bool progress() override;
  bool cancel(OperationId operation) override;
  void peer_failed(Rank peer) override;
  int wait_fd() const override { return poller_->fd(); }

 private:
  enum class Stage : std::uint8_t { kNone, kConnecting, kConnected, kFailed };
  // Consecutive calls of progress() that write and do not read.
  static constexpr int kUnpolledMax = 8;
  struct Fresh {  // connected sockets on the way to the driver
    Rank peer;
    std::vector<int> sockets;
  };

  TcpTransport(Rank self, int rank_count, Connector& connector, Options options,
               std::unique_ptr<Poller> poller);
  Link& link(Rank peer) { return *links_[static_cast<std::size_t>(peer.value())]; }
  Result<void> connect_one(Rank peer, Deadline deadline);
  Result<std::vector<int>> make_sockets(Rank peer, Deadline deadline);
  void adopt_fresh();
  bool flush_busy();
  void report_lost();
  void drop(Arrival* arrivals, bool refuse);

  const Rank self_;
  std::unique_ptr<Connector> own_connector_;  // if it has one
  Connector& connector_;
  const Options options_;
  const Capabilities capabilities_;
  const std::unique_ptr<Poller> poller_;
  Core core_;
  std::vector<std::unique_ptr<Link>> links_;  // index = rank
  std::vector<Link*> flushing_;
  int unpolled_ = 0;  // of kUnpolledMax

  std::mutex mutex_;
  std::condition_variable stage_changed_;
  std::vector<Stage> stages_;  // index = rank; guarded by mutex_, like fresh_
  std::vector<Fresh> fresh_;
  std::atomic<bool> has_fresh_ = false;
};

}  // namespace farandole::tcp
