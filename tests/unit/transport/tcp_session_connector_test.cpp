// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap/socket.hpp"
#include "transport/tcp/session_connector.hpp"
#include "transport/tcp/tcp_transport.hpp"

namespace farandole::tcp {
namespace {

class FakeSession final : public Session {
 public:
  const Members& members() const override { return members_; }
  Result<int> open(Rank peer, std::string_view purpose, Deadline) override {
    return note("open", peer, purpose, 10);
  }
  Result<int> accept(Rank peer, std::string_view purpose, Deadline) override {
    return note("accept", peer, purpose, 20);
  }
  void close(int fd) override { last = "close " + std::to_string(fd); }
  Result<void> begin(Deadline) override { return {}; }
  std::optional<Error> start_failure(Deadline) override { return std::nullopt; }
  void flood(std::string_view) override {}
  void leave(std::string_view) override {}
  void give_up(const Error&) override {}
  std::uint64_t rejected_connections() const override { return 0; }

  std::string last;

 private:
  Result<int> note(const char* call, Rank peer, std::string_view purpose, int descriptor) {
    last = call + std::string(" ") + std::to_string(peer.value()) + " " + std::string(purpose);
    if (peer == Rank{9}) return Error{ErrorKind::kTimedOut, "rank 9 is late"};
    return descriptor;
  }
  Members members_;
};

// Goal: the control plane is asked for what the transport asks for, errors come back as they are.
TEST(SessionConnector, PassesEverythingOn) {
  FakeSession session;
  SessionConnector connector(session);
  EXPECT_EQ(*connector.open(Rank{3}, "tcp.0", Deadline::never()), 10);
  EXPECT_EQ(session.last, "open 3 tcp.0");
  EXPECT_EQ(*connector.accept(Rank{4}, "tcp.1", Deadline::never()), 20);
  EXPECT_EQ(session.last, "accept 4 tcp.1");
  connector.close(10);
  EXPECT_EQ(session.last, "close 10");
  const auto late = connector.open(Rank{9}, "tcp.0", Deadline::never());
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().kind, ErrorKind::kTimedOut);
  EXPECT_EQ(late.error().message, "rank 9 is late");
}

Job job_of(int rank, int size, const Descriptor& socket) {
  Job job;
  job.rank = Rank{rank};
  job.size = size;
  job.local_rank = rank;
  job.local_size = size;
  job.host = "this host";
  job.host_id = "this host";
  job.timeout = std::chrono::seconds(30);
  job.start_timeout = std::chrono::seconds(120);
  job.id = "tcp test";
  job.address = "127.0.0.1";
  job.port = local_endpoint(socket.fd()).port;
  job.listen_fd = rank == 0 ? socket.fd() : -1;
  job.secret = Secret("known to the ranks of this test");
  return job;
}

// Sends 100,000 bytes of its rank to every peer and checks what they send.
void exchange(TcpTransport& transport, int self, int rank_count) {
  const auto count = static_cast<std::size_t>(rank_count);
  const std::vector<std::byte> source(100000, static_cast<std::byte>(self));
  std::vector<std::vector<std::byte>> targets(count, std::vector<std::byte>(source.size()));
  std::vector<Send> sends(count);
  std::vector<Receive> receives(count);
  for (int peer = 0; peer < rank_count; ++peer) {
    const auto at = static_cast<std::size_t>(peer);
    sends[at].peer = receives[at].peer = Rank{peer};
    sends[at].bytes = receives[at].bytes = Bytes{source.size()};
    sends[at].source = source.data();
    receives[at].target = targets[at].data();
    if (peer == self) continue;
    transport.post(sends[at]);
    transport.post(receives[at]);
  }
  const auto pending = [](const Transfer& t) { return t.state == TransferState::kActive; };
  const Deadline deadline = Deadline::after(std::chrono::seconds(60));
  while (std::ranges::any_of(sends, pending) || std::ranges::any_of(receives, pending)) {
    if (!transport.progress()) std::this_thread::yield();
    ASSERT_FALSE(deadline.passed()) << "rank " << self;
  }
  for (int peer = 0; peer < rank_count; ++peer) {
    const std::vector<std::byte> expected(source.size(), static_cast<std::byte>(peer));
    EXPECT_TRUE(peer == self || targets[static_cast<std::size_t>(peer)] == expected);
  }
}

// Goal: transports meet over real sessions.
// Method: three ranks as threads rendezvous, connect all pairs and exchange long messages.
TEST(SessionConnector, RealSessions) {
  constexpr int kRanks = 3;
  const auto socket = listen_at(Endpoint{"127.0.0.1", 0});
  ASSERT_TRUE(socket);
  const auto run_rank = [&](int self) {
    auto session = Session::start(job_of(self, kRanks, *socket), {}, {});
    ASSERT_TRUE(session) << session.error().message;
    {
      SessionConnector connector(**session);
      auto transport = TcpTransport::create(Rank{self}, kRanks, connector, {});
      ASSERT_TRUE(transport) << transport.error().message;
      const Rank peers[] = {Rank{0}, Rank{1}, Rank{2}};
      const auto connected =
          (*transport)->connect(peers, Deadline::after(std::chrono::seconds(60)));
      ASSERT_TRUE(connected) << connected.error().message;
      exchange(**transport, self, kRanks);
    }
    (*session)->leave("done");
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) threads.emplace_back(run_rank, rank);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace farandole::tcp
