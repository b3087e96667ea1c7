// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "unit/transport/shm/ranks.hpp"

namespace farandole {
namespace {

constexpr std::size_t kSizes[] = {0, 8, 4096, 4097, 1'000'000, 5'000'001};
constexpr std::uint32_t kSizeCount = 6;

/// Swaps record with the other process over a socket, as rendezvous would.
Members swap_records(int socket, const ShmRank& self) {
  std::string text;
  for (const auto& [key, value] : self.member.record) text += key + "=" + value + "\n";
  text.resize(500);
  EXPECT_EQ(::send(socket, text.data(), text.size(), 0), 500);
  EXPECT_EQ(::recv(socket, text.data(), text.size(), MSG_WAITALL), 500);
  Member other = self.member;
  other.rank = Rank{1 - self.member.rank.value()};
  for (auto& [key, value] : other.record) {
    const std::size_t start = text.find(key + "=") + key.size() + 1;
    value = text.substr(start, text.find('\n', start) - start);
  }
  Members members = {self.member, other};
  if (self.member.rank == Rank{1}) std::swap(members[0], members[1]);
  return members;
}

/// Progress, asleep on the bell when nothing moves; false after 30 s without a wake-up.
template <class Condition>
bool sleep_until(ShmTransport& transport, Doorbell& bell, Condition condition) {
  while (!condition()) {
    if (transport.progress()) continue;
    bell.arm();
    pollfd wait = {bell.fd(), POLLIN, 0};
    if (!transport.progress() && !condition() && ::poll(&wait, 1, 30'000) != 1) return false;
    bell.disarm();
    bell.drain();
  }
  return true;
}

/// Both ways at once: every size from library memory and from the heap; true if all is right.
bool exchange(ShmTransport& transport, ShmRank& self) {
  const int rank = self.member.rank.value();
  const auto value = [](int from, std::size_t i) {
    return static_cast<std::byte>(from * 91 + static_cast<int>(i));
  };
  std::vector<Send> sends(2 * kSizeCount);
  std::vector<Receive> receives(2 * kSizeCount);
  std::vector<std::vector<std::byte>> heap(2 * kSizeCount), targets(2 * kSizeCount);
  for (std::uint32_t i = 0; i < 2 * kSizeCount; ++i) {
    const std::size_t bytes = kSizes[i / 2];
    targets[i].resize(bytes + 1);
    receives[i] = receive_from(1 - rank, i, targets[i].data(), bytes);
    transport.post(receives[i]);
    heap[i].resize(bytes + 1);
    auto owned = self.memory->allocate(Bytes{bytes});
    std::byte* source = i % 2 == 0 && owned ? *owned : heap[i].data();
    for (std::size_t k = 0; k < bytes; ++k) source[k] = value(rank, k);
    sends[i] = send_to(1 - rank, i, source, bytes);
    transport.post(sends[i]);
  }
  const auto done = [](const Transfer& t) { return t.state == TransferState::kDone; };
  if (!sleep_until(transport, *self.bell, [&] {
        return std::ranges::all_of(sends, done) && std::ranges::all_of(receives, done);
      })) {
    return false;
  }
  for (std::uint32_t i = 0; i < 2 * kSizeCount; ++i) {
    for (std::size_t k = 0; k < kSizes[i / 2]; ++k) {
      if (targets[i][k] != value(1 - rank, k)) return false;
    }
  }
  return true;
}

std::size_t files_in_dev_shm() {
  std::error_code error;
  std::filesystem::directory_iterator all("/dev/shm", error);
  return error ? 0 : static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

/// Forks; the child's result is its exit status. The child never returns into the test.
template <class Child>
pid_t in_child(Child child) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  ::alarm(60);
  ::_exit(child() ? 0 : 1);
}

// Goal: two processes exchange messages of all kinds and may sleep meanwhile.
// Method: fork; both make their own memory, swap record, connect, exchange several times.
TEST(ShmProcess, TwoProcessesExchange) {
  int sockets[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
  const auto side = [&](int rank) {
    ShmRank self(rank);
    const auto transport = self.join(swap_records(sockets[rank], self));
    const Rank peer[] = {Rank{1 - rank}};
    if (!transport->connect(peer, Deadline::after(std::chrono::seconds(30)))) return false;
    bool right = true;
    for (int i = 0; i < 3; ++i) right = right && exchange(*transport, self);
    // The peer may still be reading the last message: leave together.
    char byte = 0;
    return right && ::send(sockets[rank], &byte, 1, 0) == 1 &&
           ::recv(sockets[rank], &byte, 1, MSG_WAITALL) == 1;
  };
  const pid_t child = in_child([&] { return side(1); });
  ASSERT_GT(child, 0);
  EXPECT_TRUE(side(0));
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  for (const int fd : sockets) ::close(fd);
}

// Goal: a peer that is killed in the middle leaves nothing behind, and its memory stays readable
// for those who mapped it until they are told.
// Method: the child floods; the parent kills it after the first message, goes on receiving what
// was sent, reports the failure, and looks for leftovers.
TEST(ShmProcess, KilledPeerLeavesNothing) {
  const std::size_t files_before = files_in_dev_shm();
  int sockets[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
  const pid_t child = in_child([&] {
    ShmRank self(1);
    const auto transport = self.join(swap_records(sockets[1], self));
    const Rank peer[] = {Rank{0}};
    if (!transport->connect(peer, Deadline::after(std::chrono::seconds(30)))) return false;
    std::vector<std::byte> source(3'000'000, std::byte{9});
    for (;;) {
      Send small = send_to(0, 1, source.data(), 100);
      Send large = send_to(0, 2, source.data(), source.size());
      transport->post(small);
      transport->post(large);
      while (large.state == TransferState::kActive) (void)transport->progress();
    }
  });
  ASSERT_GT(child, 0);
  ShmRank self(0);
  const Members members = swap_records(sockets[0], self);
  const auto transport = self.join(members);
  const Rank peer[] = {Rank{1}};
  ASSERT_TRUE(transport->connect(peer, Deadline::after(std::chrono::seconds(30))));
  std::vector<std::byte> target(3'000'000);
  Receive first = receive_from(1, 1, target.data(), 100);
  transport->post(first);
  ASSERT_TRUE(
      sleep_until(*transport, *self.bell, [&] { return first.state == TransferState::kDone; }));
  ::kill(child, SIGKILL);
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
  Receive large = receive_from(1, 2, target.data(), target.size());
  Receive never = receive_from(1, 3, target.data(), 10);
  Send lost = send_to(1, 1, target.data(), target.size());
  transport->post(large);
  transport->post(never);
  transport->post(lost);
  while (transport->progress()) {
  }
  EXPECT_EQ(never.state, TransferState::kActive);
  transport->peer_failed(Rank{1});
  for (const Transfer* transfer :
       {static_cast<const Transfer*>(&never), static_cast<const Transfer*>(&lost)}) {
    EXPECT_EQ(transfer->state, TransferState::kFailed);
    EXPECT_EQ(transfer->error, ErrorKind::kRankFailed);
  }
  EXPECT_NE(large.state, TransferState::kActive);
  EXPECT_EQ(files_in_dev_shm(), files_before);
  EXPECT_FALSE(Doorbell::reachable(members[1].record.at("shm.doorbell"), self.bell->fd()));
  for (const int fd : sockets) ::close(fd);
}

}  // namespace
}  // namespace farandole
