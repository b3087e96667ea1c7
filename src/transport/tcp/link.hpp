// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "transport/matcher.hpp"
#include "transport/queue.hpp"
#include "transport/tcp/id_table.hpp"
#include "transport/tcp/input.hpp"
#include "transport/tcp/output.hpp"
#include "transport/tcp/poller.hpp"
#include "transport/transport.hpp"

namespace farandole::tcp {

class Link;

/// Whether the socket's other end is on this host, too.
bool is_near(int socket);

/// A send whose message is longer than its head.
struct Outgoing {
  Send* send = nullptr;
  std::uint64_t receive_id = 0;  // the peer's; 0 until it is ready
  std::size_t framed_bytes = 0;  // put into frames so far
  bool refused = false;          // done once the framed bytes have left
};

/// A receive whose message has begun to arrive and is not complete.
struct Incoming {
  Receive* receive = nullptr;
  std::size_t announced_bytes = 0;  // by frame headers so far, the head included
};

/// Which ranks send to this one in the operation of the last receive that was posted.
struct Senders {
  OperationId operation;
  Rank only{-1};  // the only one that does; -1 if several do

  void add(OperationId of, Rank peer) {
    if (of != operation) {
      *this = {of, peer};
    } else if (peer != only) {
      only = Rank{-1};
    }
  }
};

/// What the links of one transport share.
struct Core {
  Core(Poller& poller_in, std::size_t rank_count, Bytes eager_bytes, Bytes segment);

  /// The limit of the next data frame. It is higher where nothing comes in that has to be read in
  /// between; measured in docs/design/0011-small-costs.md.
  std::size_t frame_bytes() const { return incoming.empty() ? one_way_bytes : segment_bytes; }

  /// Closes a connection's socket, through the connector that made it.
  std::function<void(int)> close = [](int fd) { ::close(fd); };
  Poller& poller;
  const std::size_t head_bytes_max;
  const std::size_t segment_bytes;
  const std::size_t one_way_bytes;
  Matcher matcher;
  Senders senders;
  IdTable<Outgoing> outgoing;
  IdTable<Incoming> incoming;
  TransportCounters counters;
  std::vector<Link*> busy;  // links that have something to flush, each once
  std::vector<Rank> lost;   // peers whose links were lost since the last report
};

/// The connections to one peer and the messages that travel on them.
///
/// Messages begin on the first connection, in the order posted. Answers travel on the last one, and
/// data frames on those between, whichever has room. The kernel takes data by the megabyte, and an
/// answer behind that would come late: the two ranks would send in turns instead of at once. Of two
/// connections the first carries messages and data, the second answers; a single one carries
/// everything.
///
/// Threads   the engine's driver only.
class Link final : public InputHandler, public OutputHandler {
 public:
  Link(Core& core, Rank peer);
  ~Link() override;

  /// Takes over the sockets of a connected pair.
  void adopt(std::span<const int> sockets);

  void post(Send& send);
  void post(Receive& receive);
  void refuse(std::uint64_t send_id);

  bool read(std::size_t connection);      // true if bytes came
  void writable(std::size_t connection);  // the kernel has room again
  bool flush();                           // true if bytes went

  /// Fails the operation's sends that are in this link's queues or have frames queued.
  void cancel(OperationId operation);
  /// Closes the connections and does the same for all sends.
  void fail();

 private:
  struct Connection;

  std::optional<std::uint64_t> on_head(const Frame& frame) override;
  bool on_message(const Frame& frame, const std::byte* head) override;
  bool on_answer(const Frame& frame) override;
  DataFate on_data(const Frame& frame) override;
  Receive* receive_of(std::uint64_t id) override;
  void delivered(std::uint64_t id, Bytes bytes) override;
  void handed_over(Send& send, Bytes payload) override;

  void begin(Receive& receive, const std::byte* head, Bytes head_bytes, std::uint64_t send_id);
  void await(Receive& receive, Bytes head_bytes, std::uint64_t send_id);
  void finish(Receive& receive);
  void finish(Send& send);
  bool refused(const Send& send);
  void answer(const Frame& frame);
  void fill();
  void fill_answers();
  std::size_t head_bytes(const Send& send) const;
  void frame_head(Send& send);
  void frame_segment(Connection& connection);
  bool write(Connection& connection);
  void lose(Connection& connection);
  void mark_busy();
  template <class Predicate>
  void end_sends(Predicate unwanted, ErrorKind kind);

  Core& core_;
  const Rank peer_;
  std::size_t head_bytes_max_ = 0;  // to a peer with which this rank exchanges messages
  std::vector<std::unique_ptr<Connection>> connections_;
  IntrusiveQueue<Send, Transfer> unsent_;  // not begun
  IntrusiveQueue<Send, Transfer> ready_;   // awaited by the peer and not yet framed in full
  std::vector<Frame> answers_;
  bool busy_ = false;  // in core_.busy
  bool lost_ = false;  // a connection broke: nothing is sent any more
};

}  // namespace farandole::tcp
