// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/tcp_transport.hpp"

#include <fcntl.h>
#include <linux/pkt_sched.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

namespace farandole::tcp {
namespace {

std::string text(Rank rank) {
  return std::to_string(rank.value());
}

Result<void> check(const char* option, std::size_t given, std::size_t step, std::size_t most) {
  if (given >= step && given <= most && given % step == 0) return {};
  return Error{ErrorKind::kInvalidArgument,
               "tcp: " + std::string(option) + " is " + std::to_string(given) +
                   "; it must be a multiple of " + std::to_string(step) + " up to " +
                   std::to_string(most)};
}

void make_quick(int fd) {
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
  const int on = 1;
  // May fail: only latency depends on it, and a socket that is not TCP has nothing to delay.
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

// For the connection of answers. At the network device, an answer behind data that this host has
// queued would be as late as one behind data of its own connection. Messages get no priority: the
// head of the next one would take bandwidth from the rest of one that a peer waits for. Devices
// without priorities ignore this.
void pass_first(int fd) {
  const int priority = TC_PRIO_INTERACTIVE;
  ::setsockopt(fd, SOL_SOCKET, SO_PRIORITY, &priority, sizeof priority);
}

}  // namespace

Result<std::unique_ptr<TcpTransport>> TcpTransport::create(Rank self, int rank_count,
                                                           Connector& connector, Options options) {
  const auto connections = static_cast<std::size_t>(std::max(options.connection_count, 0));
  const auto near_most = static_cast<std::size_t>(std::max(options.near_connection_count_max, 0));
  constexpr std::size_t kStep = Receive::kPieceAlignment;
  for (const auto& checked :
       {check("connection_count", connections, 1, 64),
        check("near_connection_count_max", near_most, 1, 64),
        check("eager_bytes_max", options.eager_bytes_max.value(), kStep, kHeadBytesMax),
        check("segment_bytes", options.segment_bytes.value(), kStep, kSegmentBytesMax)}) {
    if (!checked) return checked.error();
  }
  auto poller = Poller::create();
  if (!poller) return poller.error();
  return std::unique_ptr<TcpTransport>(
      new TcpTransport(self, rank_count, connector, std::move(options), *std::move(poller)));
}

Result<std::unique_ptr<TcpTransport>> TcpTransport::create(Rank self, int rank_count,
                                                           std::unique_ptr<Connector> connector,
                                                           Options options) {
  auto made = create(self, rank_count, *connector, std::move(options));
  if (made) (*made)->own_connector_ = std::move(connector);
  return made;
}

TcpTransport::TcpTransport(Rank self, int rank_count, Connector& connector, Options options,
                           std::unique_ptr<Poller> poller)
    : self_(self),
      connector_(connector),
      options_(std::move(options)),
      capabilities_{.name = "tcp"},
      poller_(std::move(poller)),
      core_(*poller_, static_cast<std::size_t>(rank_count), options_.eager_bytes_max,
            options_.segment_bytes),
      stages_(static_cast<std::size_t>(rank_count), Stage::kNone) {
  core_.close = [&connector](int fd) { connector.close(fd); };
  flushing_.reserve(stages_.size());
  for (int rank = 0; rank < rank_count; ++rank) {
    links_.push_back(std::make_unique<Link>(core_, Rank{rank}));
  }
}

TcpTransport::~TcpTransport() {
  for (const Fresh& fresh : fresh_) connector_.close_all(fresh.sockets);
}

// ---- connecting, on any thread

// Needs only the peer's rank; the control plane knows the rest.
Result<void> TcpTransport::add_peer(const Member& peer, Deadline deadline) {
  const int rank_count = static_cast<int>(links_.size());
  if (peer.rank < Rank{0} || peer.rank >= Rank{rank_count}) {
    return Error{ErrorKind::kInvalidArgument, "rank " + text(self_) + ": cannot connect to rank " +
                                                  text(peer.rank) + "; ranks are 0 to " +
                                                  std::to_string(rank_count - 1)};
  }
  if (peer.rank == self_) return {};
  return connect_one(peer.rank, deadline);
}

// All ranks take their pairs in one global order, by the lower and then the higher rank, so that
// no circle of ranks can wait for each other.
Result<void> TcpTransport::connect(std::span<const Rank> peers, Deadline deadline) {
  std::vector<Rank> sorted(peers.begin(), peers.end());
  std::ranges::sort(sorted);
  for (const Rank peer : sorted) {
    if (auto added = add_peer({.rank = peer}, deadline); !added) return added;
  }
  return {};
}

Result<void> TcpTransport::connect_one(Rank peer, Deadline deadline) {
  std::unique_lock lock(mutex_);
  Stage& stage = stages_[static_cast<std::size_t>(peer.value())];
  if (!stage_changed_.wait_until(lock, deadline.when(),
                                 [&] { return stage != Stage::kConnecting; })) {
    return Error{ErrorKind::kTimedOut, "rank " + text(self_) + ": deadline passed while another " +
                                           "thread was connecting to rank " + text(peer)};
  }
  if (stage == Stage::kConnected) return {};
  const auto failed = [&] {
    Error error{ErrorKind::kRankFailed,
                "rank " + text(self_) + ": cannot connect to rank " + text(peer) + ": it failed"};
    error.culprit.emplace().rank = peer.value();
    return error;
  };
  if (stage == Stage::kFailed) return failed();
  stage = Stage::kConnecting;
  lock.unlock();
  auto sockets = make_sockets(peer, deadline);
  lock.lock();
  stage_changed_.notify_all();
  if (stage == Stage::kFailed) {
    if (sockets) connector_.close_all(*sockets);
    return failed();
  }
  stage = sockets ? Stage::kConnected : Stage::kNone;
  if (!sockets) return sockets.error();
  fresh_.push_back(Fresh{peer, *std::move(sockets)});
  has_fresh_.store(true, std::memory_order_release);
  poller_->wake();
  return {};
}

Result<std::vector<int>> TcpTransport::make_sockets(Rank peer, Deadline deadline) {
  std::vector<int> sockets;
  int count = options_.connection_count;
  for (int i = 0; i < count; ++i) {
    const std::string purpose = "tcp." + std::to_string(i);
    auto socket = self_ < peer ? connector_.open(peer, purpose, deadline)
                               : connector_.accept(peer, purpose, deadline);
    if (!socket) {
      connector_.close_all(sockets);
      return socket.error();
    }
    make_quick(*socket);
    if (i == 0 && is_near(*socket)) count = std::min(count, options_.near_connection_count_max);
    if (i > 0 && i + 1 == count) pass_first(*socket);
    sockets.push_back(*socket);
  }
  return sockets;
}

// ---- moving, on the driver

void TcpTransport::adopt_fresh() {
  const std::lock_guard lock(mutex_);
  has_fresh_.store(false, std::memory_order_relaxed);
  for (const Fresh& fresh : fresh_) {
    if (core_.matcher.failed(fresh.peer)) {
      connector_.close_all(fresh.sockets);
    } else {
      link(fresh.peer).adopt(fresh.sockets);
    }
  }
  fresh_.clear();
}

bool TcpTransport::progress() {
  if (has_fresh_.load(std::memory_order_acquire)) adopt_fresh();
  // What was sent may have ended an operation, so asking what has arrived is left to a later call.
  if (flush_busy() && ++unpolled_ < kUnpolledMax) {
    report_lost();
    return true;
  }
  unpolled_ = 0;
  bool moved = false;
  std::array<epoll_event, 64> events;
  for (const epoll_event& event : poller_->ready(events)) {
    Link& at = *links_[event.data.u64 >> 32];
    const std::size_t connection = event.data.u64 & 0xffffffff;
    if (event.events & (EPOLLIN | EPOLLHUP | EPOLLERR)) moved |= at.read(connection);
    if (event.events & EPOLLOUT) at.writable(connection);
  }
  moved |= flush_busy();
  report_lost();
  return moved;
}

bool TcpTransport::flush_busy() {
  bool moved = false;
  flushing_.swap(core_.busy);
  for (Link* each : flushing_) moved |= each->flush();
  flushing_.clear();
  return moved;
}

void TcpTransport::report_lost() {
  for (const Rank peer : core_.lost) {
    if (options_.on_link_lost && !core_.matcher.failed(peer)) options_.on_link_lost(peer);
  }
  core_.lost.clear();
}

// ---- endings

// Releases early messages that the matcher gave up. `refuse`: their senders wait for an answer.
void TcpTransport::drop(Arrival* arrivals, bool refuse) {
  while (arrivals != nullptr) {
    Arrival& arrival = *arrivals;
    arrivals = arrival.next;
    if (refuse && arrival.handle != 0) link(arrival.envelope.peer).refuse(arrival.handle);
    core_.matcher.release(arrival);
  }
}

bool TcpTransport::cancel(OperationId operation) {
  drop(core_.matcher.cancel(operation), true);
  for (auto& each : links_) each->cancel(operation);
  const auto end = [&](Transfer& transfer) {
    if (transfer.tag.operation != operation) return false;
    transfer.fail(ErrorKind::kInternal);
    return true;
  };
  core_.outgoing.remove_if([&](Outgoing& outgoing) { return end(*outgoing.send); });
  core_.incoming.remove_if([&](Incoming& incoming) { return end(*incoming.receive); });
  return true;
}

void TcpTransport::peer_failed(Rank peer) {
  {
    const std::lock_guard lock(mutex_);
    stages_[static_cast<std::size_t>(peer.value())] = Stage::kFailed;
  }
  stage_changed_.notify_all();
  drop(core_.matcher.peer_failed(peer), false);
  link(peer).fail();
  const auto end = [&](Transfer& transfer) {
    if (transfer.peer != peer) return false;
    transfer.fail(ErrorKind::kRankFailed);
    return true;
  };
  core_.outgoing.remove_if([&](Outgoing& outgoing) { return end(*outgoing.send); });
  core_.incoming.remove_if([&](Incoming& incoming) { return end(*incoming.receive); });
}

}  // namespace farandole::tcp
