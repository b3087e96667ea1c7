// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/tcp_transport.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "unit/transport/tcp_sockets.hpp"

namespace farandole::tcp {
namespace {

using std::chrono::seconds;

constexpr std::size_t kHeadBytes = 128 << 10;  // where one rank sends
const std::size_t kExchangeHeadBytes = TcpTransport::Options{}.eager_bytes_max.value();

std::pair<int, int> small_pair() {
  return local_pair(4096);
}
std::pair<int, int> wide_pair() {
  return local_pair();
}

template <class T>
T transfer(int peer, std::uint32_t sequence, std::size_t bytes) {
  T made;
  made.peer = Rank{peer};
  made.tag.operation.sequence = sequence;
  made.signature.count = bytes;
  made.bytes = Bytes{bytes};
  return made;
}

Send send_to(int peer, std::uint32_t sequence, std::span<const std::byte> source) {
  Send send = transfer<Send>(peer, sequence, source.size());
  send.source = source.data();
  return send;
}

Receive receive_from(int peer, std::uint32_t sequence, std::span<std::byte> target) {
  Receive receive = transfer<Receive>(peer, sequence, target.size());
  receive.target = target.data();
  return receive;
}

bool readable(int fd) {
  pollfd poll{.fd = fd, .events = POLLIN, .revents = 0};
  return ::poll(&poll, 1, 0) == 1;
}

// Ranks 0 and 1 in this thread, so that every step happens when the test says so.
class TcpPair {
 public:
  explicit TcpPair(SocketHub::MakePair make = tcp_pair, int connection_count = 2)
      : hub_(make), connectors_{{hub_, Rank{0}}, {hub_, Rank{1}}} {
    for (int self : {0, 1}) {
      TcpTransport::Options options;
      options.connection_count = options.near_connection_count_max = connection_count;
      options.on_link_lost = [this, self](Rank peer) { lost[self].push_back(peer.value()); };
      auto made = TcpTransport::create(Rank{self}, 2, connectors_[self], options);
      EXPECT_TRUE(made);
      ranks[self] = *std::move(made);
    }
    for (int self : {0, 1}) {
      const Rank peer{1 - self};
      const auto connected = ranks[self]->connect({&peer, 1}, Deadline::after(seconds(10)));
      EXPECT_TRUE(connected) << (connected ? "" : connected.error().message);
    }
  }

  // Moves both ranks until `done`; false if that takes absurdly long.
  bool run(const std::function<bool()>& done) {
    const Deadline deadline = Deadline::after(seconds(60));
    while (!done()) {
      for (auto& rank : ranks) {
        if (rank != nullptr) rank->progress();
      }
      if (deadline.passed()) return false;
    }
    return true;
  }
  template <class... Transfers>
  bool finish(const Transfers&... transfers) {
    return run([&] { return ((transfers.state != TransferState::kActive) && ...); });
  }
  // A message in each direction: what was sent before on the first connection has arrived.
  bool round_trip(std::uint32_t sequence) {
    std::byte data[2]{};
    std::byte targets[2]{};
    Send there = send_to(1, sequence, {&data[0], 1}), back = send_to(0, sequence, {&data[1], 1});
    Receive far = receive_from(0, sequence, {&targets[0], 1});
    Receive near = receive_from(1, sequence, {&targets[1], 1});
    ranks[0]->post(there);
    ranks[1]->post(far);
    if (!finish(there, far)) return false;
    ranks[1]->post(back);
    ranks[0]->post(near);
    return finish(back, near);
  }

 private:
  SocketHub hub_;
  HubConnector connectors_[2];

 public:
  std::vector<int> lost[2];
  std::unique_ptr<TcpTransport> ranks[2];
};

// Goal: options out of range are refused in words.
TEST(TcpTransport, OptionsAreChecked) {
  SocketHub hub(tcp_pair);
  HubConnector connector(hub, Rank{0});
  const auto refused = [&](TcpTransport::Options options, const char* name) {
    const auto made = TcpTransport::create(Rank{0}, 2, connector, options);
    ASSERT_FALSE(made) << name;
    EXPECT_EQ(made.error().kind, ErrorKind::kInvalidArgument);
    EXPECT_NE(made.error().message.find(name), std::string::npos) << made.error().message;
  };
  refused({.connection_count = 0, .on_link_lost = {}}, "connection_count");
  refused({.connection_count = 65, .on_link_lost = {}}, "connection_count");
  refused({.near_connection_count_max = 0, .on_link_lost = {}}, "near_connection_count_max");
  refused({.eager_bytes_max = Bytes{8}, .on_link_lost = {}}, "eager_bytes_max");
  refused({.eager_bytes_max = Bytes{kHeadBytesMax + 16}, .on_link_lost = {}}, "eager_bytes_max");
  refused({.segment_bytes = Bytes{100}, .on_link_lost = {}}, "segment_bytes");
}

// Goal: connect() is idempotent, also from several threads at once, and wakes the driver.
TEST(TcpTransport, ConnectIsIdempotent) {
  TcpPair pair;
  EXPECT_TRUE(readable(pair.ranks[0]->wait_fd()));
  ASSERT_TRUE(pair.round_trip(1));
  EXPECT_FALSE(readable(pair.ranks[0]->wait_fd()));
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&pair, self = i % 2] {
      const Rank peers[] = {Rank{1 - self}, Rank{self}};
      EXPECT_TRUE(pair.ranks[self]->connect(peers, Deadline::after(seconds(10))));
    });
  }
  for (auto& thread : threads) thread.join();
  ASSERT_TRUE(pair.round_trip(2));
  EXPECT_TRUE(pair.lost[0].empty() && pair.lost[1].empty());
}

// Goal: a first connect() of many threads makes each connection once.
TEST(TcpTransport, ConcurrentFirstConnect) {
  SocketHub hub(tcp_pair);
  HubConnector connectors[2] = {{hub, Rank{0}}, {hub, Rank{1}}};
  std::unique_ptr<TcpTransport> ranks[2];
  for (int self : {0, 1}) {
    ranks[self] = *TcpTransport::create(Rank{self}, 2, connectors[self], {});
  }
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&ranks, self = i % 2] {
      const Rank peer{1 - self};
      const auto connected = ranks[self]->connect({&peer, 1}, Deadline::after(seconds(30)));
      EXPECT_TRUE(connected) << (connected ? "" : connected.error().message);
    });
  }
  for (auto& thread : threads) thread.join();
  const auto data = numbered(1000);
  std::vector<std::byte> target(1000);
  Send send = send_to(1, 1, data);
  Receive receive = receive_from(0, 1, target);
  ranks[0]->post(send);
  ranks[1]->post(receive);
  while (send.state == TransferState::kActive || receive.state == TransferState::kActive) {
    ranks[0]->progress();
    ranks[1]->progress();
  }
  EXPECT_EQ(target, data);
}

TEST(TcpTransport, ConnectErrorsNameThePeer) {
  SocketHub hub(tcp_pair);
  HubConnector connector(hub, Rank{3});
  auto made = TcpTransport::create(Rank{3}, 4, connector, {});
  ASSERT_TRUE(made);
  const auto attempt = [&](int peer) {
    const Rank rank{peer};
    return (*made)->connect({&rank, 1}, Deadline::after(std::chrono::milliseconds(1)));
  };
  EXPECT_EQ(attempt(4).error().kind, ErrorKind::kInvalidArgument);
  EXPECT_EQ(attempt(-1).error().kind, ErrorKind::kInvalidArgument);
  EXPECT_EQ(attempt(2).error().kind, ErrorKind::kTimedOut);
  EXPECT_NE(attempt(2).error().message.find("rank 2"), std::string::npos);
  (*made)->peer_failed(Rank{1});
  const auto failed = attempt(1);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().kind, ErrorKind::kRankFailed);
  EXPECT_EQ(failed.error().culprit->rank, 1);
}

// Goal: what is posted before connect() moves after it.
TEST(TcpTransport, PostBeforeConnect) {
  SocketHub hub(tcp_pair);
  HubConnector connectors[2] = {{hub, Rank{0}}, {hub, Rank{1}}};
  auto low = *TcpTransport::create(Rank{0}, 2, connectors[0], {});
  auto high = *TcpTransport::create(Rank{1}, 2, connectors[1], {});
  const auto data = numbered(50000);
  std::vector<std::byte> target(data.size());
  Send send = send_to(1, 1, data);
  Receive receive = receive_from(0, 1, target);
  low->post(send);
  high->post(receive);
  low->progress();
  const Rank zero{0}, one{1};
  ASSERT_TRUE(low->connect({&one, 1}, Deadline::after(seconds(10))));
  ASSERT_TRUE(high->connect({&zero, 1}, Deadline::after(seconds(10))));
  while (receive.state == TransferState::kActive || send.state == TransferState::kActive) {
    low->progress();
    high->progress();
  }
  EXPECT_EQ(target, data);
}

// Goal: messages of every interesting length arrive, early and late receives alike, on one and
// on several connections, one way and in exchanges, and the counters add up.
TEST(TcpTransport, LengthsAroundEveryLimit) {
  const std::size_t segment = 256 << 10;
  for (const auto& [connection_count, exchange] :
       {std::pair(1, false), std::pair(1, true), std::pair(2, false), std::pair(2, true),
        std::pair(4, false)}) {
    const std::size_t head = exchange ? kExchangeHeadBytes : kHeadBytes;
    for (const auto make : {&tcp_pair, &small_pair}) {
      TcpPair pair(make, connection_count);
      std::uint32_t sequence = 0;
      std::uint64_t total = 0;
      for (const std::size_t bytes :
           {std::size_t{0}, std::size_t{1}, head - 1, head, head + 1, head + 17, head + segment,
            head + segment + 1, 3 * segment + 5}) {
        for (const bool early : {false, true}) {
          const auto data = numbered(bytes);
          std::vector<std::byte> target(bytes);
          Send send = send_to(1, ++sequence, data);
          Receive receive = receive_from(0, sequence, target);
          Send back = send_to(0, sequence, {});
          Receive other = receive_from(1, sequence, {});
          if (exchange) pair.ranks[0]->post(other);
          if (!early) pair.ranks[1]->post(receive);
          pair.ranks[0]->post(send);
          ASSERT_TRUE(pair.round_trip(1000 + sequence));
          if (early) pair.ranks[1]->post(receive);
          if (exchange) pair.ranks[1]->post(back);
          ASSERT_TRUE(pair.finish(send, receive, back, other));
          EXPECT_EQ(send.state, TransferState::kDone);
          EXPECT_EQ(receive.state, TransferState::kDone);
          EXPECT_EQ(target, data) << bytes;
          total += bytes + 1;
        }
      }
      EXPECT_EQ(pair.ranks[0]->counters().sent_bytes, total);
      EXPECT_EQ(pair.ranks[1]->counters().received_bytes, total);
      EXPECT_EQ(pair.ranks[0]->counters().sent_messages, 2 * sequence);
      EXPECT_EQ(pair.ranks[1]->counters().received_messages, 2 * sequence);
    }
  }
}

// Goal: within a host two connections are made, whatever is asked for between hosts.
TEST(TcpTransport, NearPairsHaveTwoConnections) {
  SocketHub hub(tcp_pair);
  HubConnector connector(hub, Rank{0});
  auto rank =
      *TcpTransport::create(Rank{0}, 2, connector, {.connection_count = 4, .on_link_lost = {}});
  const Rank one{1};
  ASSERT_TRUE(rank->connect({&one, 1}, Deadline::after(seconds(10))));
  for (const char* purpose : {"tcp.0", "tcp.1"}) {
    const auto end = hub.accept(Rank{0}, one, purpose, Deadline::after(seconds(10)));
    ASSERT_TRUE(end) << purpose;
    ::close(*end);
  }
  EXPECT_FALSE(hub.accept(Rank{0}, one, "tcp.2", Deadline::after(std::chrono::milliseconds(1))));
}

// Goal: a large message uses all connections of the pair between the first and the last, in longer
// segments while nothing comes in.
// Method: the test holds one end of four connections and plays the peer by hand.
TEST(TcpTransport, SegmentsAreSpread) {
  for (const bool receives : {false, true}) {
    SocketHub hub(wide_pair);
    HubConnector connector(hub, Rank{0});
    auto rank = *TcpTransport::create(Rank{0}, 2, connector,
                                      {.connection_count = 4,
                                       .near_connection_count_max = 4,
                                       .segment_bytes = Bytes{1024},
                                       .on_link_lost = {}});
    const Rank one{1};
    ASSERT_TRUE(rank->connect({&one, 1}, Deadline::after(seconds(10))));
    int ends[4];
    for (int i = 0; i < 4; ++i) {
      ends[i] = *hub.accept(Rank{0}, one, "tcp." + std::to_string(i), Deadline::never());
    }
    std::vector<std::byte> bytes(1 << 20), target(kHeadBytes + 1);
    Receive receive = receive_from(1, 2, target);
    if (receives) {
      rank->post(receive);
      const auto head = encode({.kind = FrameKind::kMessage,
                                .tag = receive.tag,
                                .signature = receive.signature,
                                .bytes = target.size(),
                                .reply = 1,
                                .payload = 0});
      ASSERT_EQ(::write(ends[0], head.data(), head.size()), static_cast<ssize_t>(head.size()));
      while (!readable(ends[3])) rank->progress();
      ASSERT_EQ(::read(ends[3], bytes.data(), bytes.size()), static_cast<ssize_t>(kFrameBytes));
    }
    const auto data = numbered(kHeadBytes + 6 * 1024);
    Send send = send_to(1, 1, data);
    rank->post(send);
    rank->progress();
    ASSERT_EQ(::read(ends[0], bytes.data(), bytes.size()),
              static_cast<ssize_t>(kFrameBytes + kHeadBytes));
    const auto message = decode(std::span<const std::byte, kFrameBytes>(bytes.data(), kFrameBytes));
    ASSERT_TRUE(message);
    const auto ready = encode({.kind = FrameKind::kReady, .id = message->reply, .reply = 1});
    ASSERT_EQ(::write(ends[3], ready.data(), ready.size()), static_cast<ssize_t>(ready.size()));
    while (send.state == TransferState::kActive) rank->progress();
    const std::size_t wanted = receives ? 3 * (kFrameBytes + 1024) : 2 * (kFrameBytes + 1536);
    for (const int end : {ends[1], ends[2]}) {
      EXPECT_EQ(::read(end, bytes.data(), bytes.size()), static_cast<ssize_t>(wanted));
    }
    EXPECT_FALSE(readable(ends[0]) || readable(ends[3]));
    for (const int end : ends) ::close(end);
  }
}

// Goal: a disagreement fails the receive with what the peer said, the send is done, and the
// next message of the same tag is not disturbed.
// Method: each pair of short and long, receive posted before and after the message.
TEST(TcpTransport, MismatchLeavesTheTagUsable) {
  TcpPair pair;
  std::uint32_t sequence = 0;
  for (const std::size_t sent : {10u, 100000u}) {
    for (const std::size_t expected : {20u, 200000u}) {
      for (const bool early : {false, true}) {
        const auto data = numbered(sent);
        std::vector<std::byte> target(expected), next_target(sent);
        Send send = send_to(1, ++sequence, data), next = send_to(1, sequence, data);
        Receive receive = receive_from(0, sequence, target);
        Receive next_receive = receive_from(0, sequence, next_target);
        if (early) pair.ranks[1]->post(receive);
        pair.ranks[0]->post(send);
        pair.ranks[0]->post(next);
        ASSERT_TRUE(pair.round_trip(1000 + sequence));
        if (!early) pair.ranks[1]->post(receive);
        pair.ranks[1]->post(next_receive);
        ASSERT_TRUE(pair.finish(send, next, receive, next_receive));
        EXPECT_EQ(send.state, TransferState::kDone);
        EXPECT_EQ(receive.state, TransferState::kFailed);
        EXPECT_EQ(receive.error, ErrorKind::kMismatch);
        EXPECT_EQ(receive.seen_bytes, Bytes{sent});
        EXPECT_EQ(receive.seen.count, sent);
        EXPECT_EQ(std::ranges::count(target, std::byte{0}), static_cast<long>(expected));
        EXPECT_EQ(next_receive.state, TransferState::kDone);
        EXPECT_EQ(next_target, data);
      }
    }
  }
}

// Goal: a sender that cancels in the middle of a frame gives its memory back at once and the
// stream stays in step.
// Method: sockets that hold a few KiB of a 1 MiB message; the source is freed after cancel().
TEST(TcpTransport, SenderCancelsInMidFrame) {
  for (const int connection_count : {1, 2, 4}) {
    TcpPair pair(small_pair, connection_count);
    auto data = std::make_unique<std::vector<std::byte>>(numbered(1 << 20));
    std::vector<std::byte> target(1 << 20);
    Send send = send_to(1, 1, *data), unstarted = send_to(1, 1, *data);
    Receive receive = receive_from(0, 1, target);
    pair.ranks[0]->post(send);
    pair.ranks[0]->post(unstarted);
    pair.ranks[1]->post(receive);
    ASSERT_TRUE(pair.run([&] { return receive.moved > Bytes{100000}; }));
    ASSERT_EQ(send.state, TransferState::kActive);
    ASSERT_TRUE(pair.ranks[0]->cancel({0, 1}));
    EXPECT_EQ(send.state, TransferState::kFailed);
    EXPECT_EQ(unstarted.state, TransferState::kFailed);
    data.reset();
    ASSERT_TRUE(pair.round_trip(2));
    EXPECT_EQ(receive.state, TransferState::kActive);
    ASSERT_TRUE(pair.ranks[1]->cancel({0, 1}));
    EXPECT_EQ(receive.state, TransferState::kFailed);
    ASSERT_TRUE(pair.round_trip(3));
  }
}

// Goal: a receiver that cancels in the middle is not written any more; its sender is done, not
// stuck, and the stream stays in step.
TEST(TcpTransport, ReceiverCancelsInMidMessage) {
  for (const int connection_count : {1, 2, 4}) {
    TcpPair pair(small_pair, connection_count);
    const auto data = numbered(1 << 20);
    auto target = std::make_unique<std::vector<std::byte>>(1 << 20);
    Send send = send_to(1, 1, data);
    Receive receive = receive_from(0, 1, *target);
    pair.ranks[0]->post(send);
    pair.ranks[1]->post(receive);
    ASSERT_TRUE(pair.run([&] { return receive.moved > Bytes{100000}; }));
    ASSERT_TRUE(pair.ranks[1]->cancel({0, 1}));
    EXPECT_EQ(receive.state, TransferState::kFailed);
    target.reset();
    // Another long message takes the cancelled one's place while that one's rest still comes.
    const std::vector<std::byte> other(1 << 20, std::byte{77});
    std::vector<std::byte> other_target(1 << 20);
    Send next = send_to(1, 2, other);
    Receive next_receive = receive_from(0, 2, other_target);
    pair.ranks[1]->post(next_receive);
    pair.ranks[0]->post(next);
    ASSERT_TRUE(pair.finish(send, next, next_receive));
    EXPECT_EQ(send.state, TransferState::kDone);
    EXPECT_EQ(next_receive.state, TransferState::kDone);
    EXPECT_EQ(other_target, other);
    EXPECT_TRUE(pair.lost[0].empty() && pair.lost[1].empty());
  }
}

// Goal: a message to a cancelled operation is refused, whether it comes before or after the
// cancellation, and a send that was cancelled ignores the answer that is on its way.
TEST(TcpTransport, CancelledOperationsRefuse) {
  TcpPair pair;
  const auto data = numbered(3 * kHeadBytes);
  std::vector<std::byte> target(data.size());
  Send before = send_to(1, 1, data);
  pair.ranks[0]->post(before);
  ASSERT_TRUE(pair.round_trip(100));
  EXPECT_EQ(before.state, TransferState::kActive);
  ASSERT_TRUE(pair.ranks[1]->cancel({0, 1}));
  Send after = send_to(1, 1, data);
  pair.ranks[0]->post(after);
  ASSERT_TRUE(pair.finish(before, after));
  EXPECT_EQ(before.state, TransferState::kDone);
  EXPECT_EQ(after.state, TransferState::kDone);

  Send late = send_to(1, 2, data);
  pair.ranks[0]->post(late);
  ASSERT_TRUE(pair.round_trip(101));
  ASSERT_TRUE(pair.ranks[0]->cancel({0, 2}));
  Receive receive = receive_from(0, 2, target);
  pair.ranks[1]->post(receive);  // answers kReady to a send that is gone
  ASSERT_TRUE(pair.round_trip(102));
  EXPECT_EQ(receive.state, TransferState::kActive);
  EXPECT_TRUE(pair.lost[0].empty() && pair.lost[1].empty());
  Send again = send_to(1, 2, data);
  pair.ranks[0]->post(again);
  EXPECT_EQ(again.state, TransferState::kFailed);
}

// Goal: a peer that is gone is reported once, costs no processor time, and fails transfers only
// when the control plane says so, then all of them and later ones at once.
TEST(TcpTransport, ConnectionLoss) {
  for (const bool blocked : {false, true}) {
    TcpPair pair(small_pair);
    const auto data = numbered(1 << 20);
    std::vector<std::byte> target(1 << 20);
    Send send = send_to(1, 1, data);
    Receive receive = receive_from(1, 2, target);
    if (blocked) pair.ranks[0]->post(send);
    pair.ranks[0]->post(receive);
    ASSERT_TRUE(pair.round_trip(3));
    pair.ranks[1].reset();
    if (!blocked) pair.ranks[0]->post(send);
    ASSERT_TRUE(pair.run([&] { return !pair.lost[0].empty(); }));
    ASSERT_TRUE(pair.run([&] { return !readable(pair.ranks[0]->wait_fd()); }));
    EXPECT_FALSE(pair.ranks[0]->progress());
    EXPECT_EQ(pair.lost[0], std::vector<int>{1});
    EXPECT_EQ(send.state, TransferState::kActive);
    EXPECT_EQ(receive.state, TransferState::kActive);
    pair.ranks[0]->peer_failed(Rank{1});
    Send later = send_to(1, 4, data);
    Receive later_receive = receive_from(1, 4, target);
    pair.ranks[0]->post(later);
    pair.ranks[0]->post(later_receive);
    for (const Transfer* each :
         {static_cast<const Transfer*>(&send), static_cast<const Transfer*>(&receive),
          static_cast<const Transfer*>(&later), static_cast<const Transfer*>(&later_receive)}) {
      EXPECT_EQ(each->state, TransferState::kFailed);
      EXPECT_EQ(each->error, ErrorKind::kRankFailed);
    }
    pair.ranks[0]->progress();
    EXPECT_EQ(pair.lost[0], std::vector<int>{1});
  }
}

// Goal: peer_failed() in every stage of a message ends it and touches it no more.
TEST(TcpTransport, PeerFailedAtEveryStep) {
  for (int steps = 0; steps < 40; ++steps) {
    TcpPair pair(small_pair);
    auto data = std::make_unique<std::vector<std::byte>>(numbered(300000));
    auto target = std::make_unique<std::vector<std::byte>>(300000);
    Send send = send_to(1, 1, *data), early = send_to(1, 2, *data);
    Receive receive = receive_from(0, 1, *target);
    pair.ranks[0]->post(send);
    pair.ranks[0]->post(early);
    pair.ranks[1]->post(receive);
    for (int i = 0; i < steps; ++i) pair.ranks[i % 2]->progress();
    pair.ranks[0]->peer_failed(Rank{1});
    pair.ranks[1]->peer_failed(Rank{0});
    data.reset();
    target.reset();
    EXPECT_NE(send.state, TransferState::kActive);
    EXPECT_NE(early.state, TransferState::kActive);
    EXPECT_NE(receive.state, TransferState::kActive);
    for (auto& rank : pair.ranks) rank->progress();
    EXPECT_FALSE(readable(pair.ranks[0]->wait_fd()));
  }
}

// A transport of rank 0 and the test's own ends of its connections to rank 1.
struct Raw {
  explicit Raw(SocketHub::MakePair make = wide_pair, int connection_count = 1,
               Bytes eager_bytes_max = TcpTransport::Options{}.eager_bytes_max)
      : hub(make), connector(hub, Rank{0}) {
    rank = *TcpTransport::create(Rank{0}, 2, connector,
                                 {.connection_count = connection_count,
                                  .near_connection_count_max = connection_count,
                                  .eager_bytes_max = eager_bytes_max,
                                  .on_link_lost = [this](Rank) { ++lost_count; }});
    const Rank one{1};
    EXPECT_TRUE(rank->connect({&one, 1}, Deadline::after(seconds(10))));
    for (int i = 0; i < connection_count; ++i) {
      ends.push_back(*hub.accept(Rank{0}, one, "tcp." + std::to_string(i), Deadline::never()));
    }
    end = ends[0];
  }
  ~Raw() {
    for (const int each : ends) ::close(each);
  }
  void write(std::span<const std::byte> data) {
    ASSERT_EQ(::write(end, data.data(), data.size()), static_cast<ssize_t>(data.size()));
    for (int i = 0; i < 3; ++i) rank->progress();
  }
  void write(const Frame& frame) { write(encode(frame)); }
  std::optional<Frame> read_frame(std::size_t payload_bytes = 0) {
    std::vector<std::byte> bytes(kFrameBytes + payload_bytes);
    for (std::size_t got = 0; got < bytes.size(); rank->progress()) {
      const auto more = readable(end) ? ::read(end, &bytes[got], bytes.size() - got) : 0;
      if (more <= 0) return std::nullopt;
      got += static_cast<std::size_t>(more);
    }
    return decode(std::span<const std::byte, kFrameBytes>(bytes.data(), kFrameBytes));
  }

  SocketHub hub;
  HubConnector connector;
  std::unique_ptr<TcpTransport> rank;
  std::vector<int> ends;
  int end;  // the first
  int lost_count = 0;
};

// Goal: frames that are legal by themselves but make no sense lose the link and change nothing.
TEST(TcpTransport, SenselessFramesLoseTheLink) {
  const Frame message{.bytes = 32, .reply = 9, .payload = 16};
  const auto begin_receive = [&](Raw& raw, Receive& receive) {
    raw.rank->post(receive);
    Frame begun = message;
    begun.signature.root = -1;
    begun.signature.count = 32;
    std::vector<std::byte> bytes(kFrameBytes + 16);
    std::ranges::copy(encode(begun), bytes.begin());
    raw.write(bytes);
    std::array<std::byte, kFrameBytes> answer;
    EXPECT_EQ(::read(raw.end, answer.data(), answer.size()), static_cast<ssize_t>(kFrameBytes));
    const auto ready = decode(answer);
    EXPECT_TRUE(ready && ready->kind == FrameKind::kReady && ready->id == 9);
    return ready ? ready->reply : 0;
  };
  for (const auto& [offset, payload] : std::vector<std::pair<std::uint64_t, std::uint32_t>>{
           {32, 16}, {16, 17}, {0, 32}, {kMessageBytesMax, 16}}) {
    Raw raw;
    std::vector<std::byte> target(32);
    Receive receive = receive_from(1, 0, target);
    const auto id = begin_receive(raw, receive);
    raw.write({.kind = FrameKind::kData, .id = id, .offset = offset, .payload = payload});
    EXPECT_EQ(raw.lost_count, 1) << offset << " " << payload;
    EXPECT_EQ(receive.state, TransferState::kActive);
  }
  Raw raw;
  const auto data = numbered(1 << 20);
  Send send = send_to(1, 1, data);
  raw.rank->post(send);
  raw.rank->progress();
  std::vector<std::byte> head(kFrameBytes + kHeadBytes);
  ASSERT_EQ(::read(raw.end, head.data(), head.size()), static_cast<ssize_t>(head.size()));
  const auto begun = decode(std::span<const std::byte, kFrameBytes>(head.data(), kFrameBytes));
  ASSERT_TRUE(begun);
  raw.write({.kind = FrameKind::kReady, .id = begun->reply + 1, .reply = 1});  // nobody's: ignored
  EXPECT_EQ(raw.lost_count, 0);
  std::vector<std::byte> twice;
  for (const std::uint64_t receive_id : {1, 2}) {
    const auto ready = encode({.kind = FrameKind::kReady, .id = begun->reply, .reply = receive_id});
    twice.insert(twice.end(), ready.begin(), ready.end());
  }
  raw.write(twice);
  EXPECT_EQ(raw.lost_count, 1);
  raw.rank->peer_failed(Rank{1});
  EXPECT_EQ(send.state, TransferState::kFailed);
}

// Goal: of a long head nothing waits for the rest of it: what is there goes to the receive, and the
// answer leaves. If nobody wants it, the rest is dropped and the stream stays in step.
TEST(TcpTransport, HeadsAreTakenAsTheyCome) {
  for (const bool wanted : {true, false}) {
    Raw raw;
    const auto data = numbered(2 * kHeadBytes);
    std::vector<std::byte> target(data.size());
    Receive receive = receive_from(1, 0, target);
    Frame begun{.tag = receive.tag,
                .signature = receive.signature,
                .bytes = data.size(),
                .reply = 9,
                .payload = static_cast<std::uint32_t>(kHeadBytes)};
    if (!wanted) ++begun.signature.count;
    raw.rank->post(receive);
    std::vector<std::byte> head(kFrameBytes + kHeadBytes);
    std::ranges::copy(encode(begun), head.begin());
    std::ranges::copy(std::span(data).first(kHeadBytes), head.begin() + kFrameBytes);
    const std::size_t half = head.size() / 2;
    raw.write(std::span(head).first(half));
    const auto answer = raw.read_frame();
    ASSERT_TRUE(answer && answer->id == 9);
    EXPECT_EQ(answer->kind, wanted ? FrameKind::kReady : FrameKind::kRefuse);
    EXPECT_EQ(receive.moved, Bytes{wanted ? half - kFrameBytes : 0});
    raw.write(std::span(head).subspan(half));
    EXPECT_EQ(receive.moved, Bytes{wanted ? kHeadBytes : 0});
    EXPECT_TRUE(!wanted || std::equal(target.begin(), target.begin() + kHeadBytes, data.begin()));
    EXPECT_EQ(receive.state, wanted ? TransferState::kActive : TransferState::kFailed);
    raw.write({.kind = FrameKind::kReady, .id = 1, .reply = 1});  // in step: a frame as any other
    EXPECT_EQ(raw.lost_count, 0);
  }
}

// Goal: heads are long where two ranks do the same at once, but shorter to other hosts, since they
// take the wire from messages whose turn it is.
// Method: a send after a receive of the same operation, and of another one.
TEST(TcpTransport, HeadsAreAsLongAsTheyPay) {
  for (const auto make : {&tcp_pair, &far_tcp_pair}) {
    for (const bool exchange : {true, false}) {
      Raw raw(make);
      const auto data = numbered(2 * kExchangeHeadBytes);
      Send send = send_to(1, 1, data);
      Receive receive = receive_from(1, exchange ? 1 : 2, {});
      raw.rank->post(receive);
      raw.rank->post(send);
      raw.rank->progress();
      const auto begun = raw.read_frame();
      ASSERT_TRUE(begun);
      const std::size_t near = exchange ? kExchangeHeadBytes : kHeadBytes;
      EXPECT_EQ(begun->payload, make == &tcp_pair ? near : std::size_t{32} << 10);
      EXPECT_EQ(begun->bytes, data.size());
    }
  }
}

// Goal: a refused send keeps its memory until the kernel has all of its head.
TEST(TcpTransport, RefusedBeforeTheHeadHasLeft) {
  Raw raw(small_pair);
  const auto data = numbered(2 * kHeadBytes);
  Send send = send_to(1, 1, data);
  raw.rank->post(send);
  raw.rank->progress();
  ASSERT_LT(send.moved, Bytes{kHeadBytes});
  std::array<std::byte, kFrameBytes> header;
  ASSERT_EQ(::read(raw.end, header.data(), header.size()), static_cast<ssize_t>(kFrameBytes));
  const auto begun = decode(header);
  ASSERT_TRUE(begun);
  raw.write({.kind = FrameKind::kRefuse, .id = begun->reply});
  EXPECT_EQ(send.state, TransferState::kActive);
  std::vector<std::byte> rest(kHeadBytes);
  for (std::size_t got = 0; got < rest.size();) {
    const auto more = ::read(raw.end, rest.data() + got, rest.size() - got);
    ASSERT_GT(more, 0);
    got += static_cast<std::size_t>(more);
    while (raw.rank->progress()) {
    }
  }
  EXPECT_EQ(send.state, TransferState::kDone);
  EXPECT_TRUE(std::ranges::equal(rest, std::span(data).first(kHeadBytes)));
  EXPECT_EQ(raw.lost_count, 0);
}

// Goal: ranks that send to each other need not take turns: an answer does not wait behind data.
// Method: nobody reads a message and the data of another, and meanwhile one asks for an answer.
TEST(TcpTransport, AnswersPassData) {
  Raw raw(small_pair, 4);
  const auto data = numbered(8 << 20);
  Send send = send_to(1, 1, data);
  raw.rank->post(send);
  raw.rank->progress();
  const auto begun = raw.read_frame(kHeadBytes);
  ASSERT_TRUE(begun);
  raw.write({.kind = FrameKind::kReady, .id = begun->reply, .reply = 1});
  EXPECT_TRUE(readable(raw.ends[1]) && readable(raw.ends[2]));
  EXPECT_EQ(send.state, TransferState::kActive);
  Send next = send_to(1, 2, data);
  raw.rank->post(next);

  std::vector<std::byte> target(32);
  Receive receive = receive_from(1, 0, target);
  raw.rank->post(receive);
  Frame message{.bytes = 32, .reply = 9, .payload = 0};
  message.signature = receive.signature;
  raw.write(message);
  EXPECT_TRUE(readable(raw.ends[0]));
  raw.end = raw.ends[3];
  const auto answer = raw.read_frame();
  EXPECT_TRUE(answer && answer->kind == FrameKind::kReady && answer->id == 9);
}

// Goal: a rank that has something to send at every step reads what it is sent nevertheless.
TEST(TcpTransport, WhoKeepsSendingAlsoReads) {
  constexpr std::uint32_t kSteps = 100;
  const std::vector<std::byte> data = numbered(1);
  std::vector<std::byte> target(1);
  std::vector<Send> sends(kSteps);
  TcpPair pair;
  Receive wanted = receive_from(1, kSteps, target);
  Send answer = send_to(0, kSteps, data);
  pair.ranks[0]->post(wanted);
  pair.ranks[1]->post(answer);
  while (answer.state == TransferState::kActive) pair.ranks[1]->progress();
  for (std::uint32_t i = 0; i < kSteps; ++i) {
    sends[i] = send_to(1, i, data);
    pair.ranks[0]->post(sends[i]);
    pair.ranks[0]->progress();
  }
  EXPECT_EQ(wanted.state, TransferState::kDone);
  EXPECT_EQ(target, data);
}

// Goal: whatever an authenticated peer sends, the transport survives and drops the link.
// Method: 10,000 random inputs, each begun with a legal header so that they reach every branch,
// while a receive and a send are active. Short heads, so that the send waits to be answered, and
// since each input has a transport of its own, with room for so many. Seed 2.
TEST(TcpTransport, TenThousandRandomInputs) {
  std::mt19937_64 random(2);
  const auto data = numbered(40000);
  int lost_count = 0;
  for (int round = 0; round < 10000; ++round) {
    Raw raw(wide_pair, 1, Bytes{4096});
    std::vector<std::byte> target(64);
    Receive receive = receive_from(1, 0, target);
    Send send = send_to(1, 0, data);
    raw.rank->post(receive);
    raw.rank->post(send);
    raw.rank->progress();
    std::vector<std::byte> stream;
    for (std::uint64_t frames = random() % 4; frames > 0; --frames) {
      Frame frame;
      frame.kind = static_cast<FrameKind>(1 + random() % 4);
      frame.id = random() % 2 << 32 | random() % 2;
      frame.reply = random() % 3;
      frame.bytes = random() % 2 * 64;
      frame.offset = random() % 4 * 16;
      frame.payload = static_cast<std::uint32_t>(random() % 4 * 16);
      const auto header = encode(frame);
      stream.insert(stream.end(), header.begin(), header.end());
      stream.resize(stream.size() + frame.payload);
    }
    for (std::uint64_t bytes = 80 + random() % 200; bytes > 0; --bytes) {
      stream.push_back(static_cast<std::byte>(random()));
    }
    raw.write(stream);
    lost_count += raw.lost_count;
    raw.rank->peer_failed(Rank{1});
    ASSERT_NE(receive.state, TransferState::kActive);
    ASSERT_NE(send.state, TransferState::kActive);
  }
  EXPECT_GT(lost_count, 9900);
}

}  // namespace
}  // namespace farandole::tcp
