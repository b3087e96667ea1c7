// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/peer_process.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "transport/shm/layout.hpp"
#include "unit/transport/shm/ranks.hpp"

namespace farandole {
namespace {

using shm::PeerProcess;
using Outcome = PeerProcess::Outcome;

/// A process that waits until it is killed; it has the same objects at the same addresses.
struct Sibling {
  Sibling() {
    if (pid == 0) {
      for (;;) ::pause();
    }
  }
  ~Sibling() { end(); }
  void end() {
    if (pid == 0) return;
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    pid = 0;
  }
  const std::uint64_t token = 0x0123456789abcdef;
  std::vector<std::byte> bytes = std::vector<std::byte>(300'000, std::byte{7});
  pid_t pid = ::fork();
};

std::uint64_t address(const void* place) {
  return reinterpret_cast<std::uint64_t>(place);
}

// Goal: what is read and written is the memory of the other process.
// Method: a forked process, whose copy of a buffer is apart from ours from then on.
TEST(PeerProcess, ReadsAndWritesTheOther) {
  Sibling other;
  const std::string entry = std::to_string(other.pid) + ":" + std::to_string(address(&other.token));
  const PeerProcess process = PeerProcess::open(entry, other.token);
  ASSERT_TRUE(process.reached());
  std::ranges::fill(other.bytes, std::byte{1});  // ours
  std::vector<std::byte> got(other.bytes.size());
  ASSERT_EQ(process.read(got.data(), address(other.bytes.data()), got.size()), Outcome::kDone);
  EXPECT_EQ(std::ranges::count(got, std::byte{7}), std::ssize(got));
  std::ranges::fill(got, std::byte{9});
  ASSERT_EQ(process.write(address(other.bytes.data()) + 1, got.data(), got.size() - 2),
            Outcome::kDone);
  ASSERT_EQ(process.read(got.data(), address(other.bytes.data()), got.size()), Outcome::kDone);
  EXPECT_EQ(std::ranges::count(got, std::byte{9}), std::ssize(got) - 2);
  EXPECT_EQ(got.front(), std::byte{7});
  EXPECT_EQ(got.back(), std::byte{7});
  EXPECT_EQ(std::ranges::count(other.bytes, std::byte{1}), std::ssize(got));
}

// Goal: a process that is not the peer is not used: a pid may mean another one here.
TEST(PeerProcess, IsOpenedOnlyWithTheToken) {
  Sibling other;
  const std::string pid = std::to_string(other.pid);
  const std::string place = std::to_string(address(&other.token));
  EXPECT_TRUE(PeerProcess::open(pid + ":" + place, other.token).reached());
  EXPECT_FALSE(PeerProcess::open(pid + ":" + place, other.token + 1).reached());
  EXPECT_FALSE(PeerProcess::open(pid + ":4096", other.token).reached());
  EXPECT_FALSE(PeerProcess::open(pid, other.token).reached());
  EXPECT_FALSE(PeerProcess::open("", other.token).reached());
  EXPECT_FALSE(PeerProcess().reached());
  const std::string own = PeerProcess::entry(&other.token);
  EXPECT_EQ(own, std::to_string(::getpid()) + ":" + place);
  EXPECT_TRUE(PeerProcess::open(own, other.token).reached());
}

TEST(PeerProcess, SaysWhatIsWrong) {
  Sibling other;
  const std::string entry = std::to_string(other.pid) + ":" + std::to_string(address(&other.token));
  const PeerProcess process = PeerProcess::open(entry, other.token);
  ASSERT_TRUE(process.reached());
  std::byte byte{};
  EXPECT_EQ(process.read(&byte, 4096, 1), Outcome::kRefused);
  EXPECT_EQ(process.write(4096, &byte, 1), Outcome::kRefused);
  EXPECT_EQ(process.read(&byte, address(other.bytes.data()), 0), Outcome::kDone);
  other.end();
  EXPECT_EQ(process.read(&byte, address(other.bytes.data()), 1), Outcome::kGone);
  EXPECT_EQ(process.write(address(other.bytes.data()), &byte, 1), Outcome::kGone);
}

/// Two connected ranks in one process.
struct Pair {
  Pair(bool first_reaches, bool second_reaches) {
    const Members members = {ranks[0].member, ranks[1].member};
    transports[0] = ranks[0].join(members, {.all_memory = first_reaches});
    transports[1] = ranks[1].join(members, {.all_memory = second_reaches});
    const Rank zero[] = {Rank{0}}, one[] = {Rank{1}};
    std::thread other([&] { EXPECT_TRUE(transports[1]->connect(zero, Deadline::never())); });
    EXPECT_TRUE(transports[0]->connect(one, Deadline::never()));
    other.join();
  }
  ShmRank ranks[2] = {ShmRank{0}, ShmRank{1}};
  std::unique_ptr<ShmTransport> transports[2];
};

/// What the first rank of a pair tells of the first message that it announced.
shm::Entry& first_entry(const Pair& pair) {
  std::byte* base = pair.ranks[0].memory->base();
  return *reinterpret_cast<shm::Entry*>(base + reinterpret_cast<const shm::Header*>(base)->entries);
}

void as_broadcast(Send& send, Receive& receive) {
  send.one_sends = receive.one_sends = true;
}

// Goal: both ranks use the kernel or none, since they plan alike.
TEST(PeerProcess, BothReachEachOtherOrNone) {
  for (const bool first : {true, false}) {
    for (const bool second : {true, false}) {
      Pair pair(first, second);
      for (const auto& transport : pair.transports) {
        EXPECT_EQ(transport->capabilities().all_memory, first && second);
      }
    }
  }
}

// Goal: a long message of a broadcast arrives whole, whoever of its two ends moves how much of it.
// Method: the sender takes so many steps for each one of the receiver's, from none to many.
TEST(PeerProcess, BothEndsMoveABroadcast) {
  constexpr std::size_t kBytes = 3'000'003;
  std::vector<std::byte> source(kBytes), target(kBytes);
  for (std::size_t i = 0; i < kBytes; ++i) source[i] = static_cast<std::byte>(i * 7 + i / 1000);
  for (const bool in_library_memory : {false, true}) {
    Pair pair(true, true);
    auto& [from, to] = pair.transports;
    std::byte* data = source.data();
    if (in_library_memory) {
      data = *pair.ranks[0].memory->allocate(Bytes{kBytes});
      std::ranges::copy(source, data);
    }
    for (const int steps : {0, 1, 2, 5, 50}) {
      const auto sequence = static_cast<std::uint32_t>(steps);
      std::ranges::fill(target, std::byte{});
      Send send = send_to(1, sequence, data, kBytes);
      Receive receive = receive_from(0, sequence, target.data(), kBytes);
      as_broadcast(send, receive);
      from->post(send);
      to->post(receive);
      for (int i = 0; i < 1000 && receive.state == TransferState::kActive; ++i) {
        for (int k = 0; k < steps || (k == 0 && i > 100); ++k) (void)from->progress();
        (void)to->progress();
      }
      (void)from->progress();
      ASSERT_EQ(receive.state, TransferState::kDone) << steps << " steps";
      EXPECT_EQ(send.state, TransferState::kDone);
      EXPECT_TRUE(target == source) << steps << " steps";
    }
  }
}

// Goal: a shared receive is not done while its sender is in the middle of a piece, however much of
// the rest it has read: what has its target then may write there. Nor does it move that piece.
// Method: the sender stands still; the test takes a piece for it, and says later that it is there.
TEST(PeerProcess, SharedTargetIsWantedUntilTheSenderHasWrittenItsPieces) {
  constexpr std::size_t kBytes = 1'000'000, kLast = kBytes % shm::kPieceBytes;
  std::vector<std::byte> source(kBytes, std::byte{1}), target(kBytes);
  Pair pair(true, true);
  auto& [from, to] = pair.transports;
  Send send = send_to(1, 1, source.data(), kBytes);
  Receive receive = receive_from(0, 1, target.data(), kBytes);
  as_broadcast(send, receive);
  from->post(send);
  shm::Entry& entry = first_entry(pair);
  ASSERT_EQ(entry.claims.take_last(16), 15U);
  to->post(receive);
  for (int i = 0; i < 100; ++i) (void)to->progress();
  EXPECT_EQ(receive.state, TransferState::kActive);
  EXPECT_EQ(std::ranges::count(target, std::byte{}), static_cast<std::ptrdiff_t>(kLast));
  shm::publish(entry.produced, std::uint64_t{1});
  (void)to->progress();
  EXPECT_EQ(receive.state, TransferState::kDone);
  (void)from->progress();
  EXPECT_EQ(send.state, TransferState::kDone);
}

// Goal: a shared send is not done before its receiver is, who may still be reading a piece.
// Method: the test is the receiver, and answers by hand when the sender has written all others.
TEST(PeerProcess, SharedSourceIsWantedUntilTheReceiverHasFinished) {
  constexpr std::size_t kBytes = 1'000'000;
  std::vector<std::byte> source(kBytes, std::byte{1}), target(kBytes);
  Pair pair(true, true);
  Send send = send_to(1, 1, source.data(), kBytes);
  send.one_sends = true;
  pair.transports[0]->post(send);
  shm::Entry& entry = first_entry(pair);
  entry.target = address(target.data()) | shm::kPrivate;
  ASSERT_TRUE(entry.claims.take_first(16));
  shm::publish(entry.reply, shm::Reply::kShare);
  for (int i = 0; i < 100; ++i) (void)pair.transports[0]->progress();
  EXPECT_EQ(entry.produced, 15U);
  EXPECT_EQ(std::ranges::count(target, std::byte{}), static_cast<std::ptrdiff_t>(shm::kPieceBytes));
  EXPECT_EQ(send.state, TransferState::kActive);
  shm::publish(entry.reply, shm::Reply::kFinished);
  (void)pair.transports[0]->progress();
  EXPECT_EQ(send.state, TransferState::kDone);
}

// Goal: a receiver that gives up a shared message waits for the piece that its sender is writing,
// does not read on meanwhile, and leaves it no other.
// Method: the test takes a piece for the sender and gives up; the source is no memory any more.
TEST(PeerProcess, WithdrawnSourceIsNotRead) {
  constexpr std::size_t kBytes = 6'000'000;
  Pair pair(true, true);
  auto& [from, to] = pair.transports;
  void* const place =
      ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(place, MAP_FAILED);
  std::vector<std::byte> target(kBytes);
  Send send = send_to(1, 1, static_cast<std::byte*>(place), kBytes);
  Receive receive = receive_from(0, 1, target.data(), kBytes);
  as_broadcast(send, receive);
  from->post(send);
  to->post(receive);
  (void)to->progress();
  shm::Entry& entry = first_entry(pair);
  ASSERT_TRUE(entry.claims.take_last(shm::piece_count(Bytes{kBytes})));
  ASSERT_FALSE(to->cancel({1, 1}));
  ::munmap(place, kBytes);
  for (int i = 0; i < 100; ++i) (void)to->progress();
  ASSERT_FALSE(to->cancel({1, 1}));
  EXPECT_FALSE(entry.claims.take_last(shm::piece_count(Bytes{kBytes})));
  shm::publish(entry.produced, std::uint64_t{1});
  EXPECT_TRUE(to->cancel({1, 1}));
  (void)from->progress();
  EXPECT_EQ(send.state, TransferState::kDone);
  std::byte byte{}, got{};
  Send next = send_to(1, 2, &byte, 1);
  Receive next_receive = receive_from(0, 2, &got, 1);
  from->post(next);
  to->post(next_receive);
  (void)to->progress();
  EXPECT_EQ(next_receive.state, TransferState::kDone);  // the peer is not taken for corrupt
}

}  // namespace
}  // namespace farandole
