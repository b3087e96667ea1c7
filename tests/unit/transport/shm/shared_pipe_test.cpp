// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>
#include <thread>
#include <tuple>
#include <vector>

#include "transport/shm/layout.hpp"
#include "unit/device/cpu/huge_pages.hpp"
#include "unit/transport/shm/ranks.hpp"

namespace farandole {
namespace {

/// Rank 0 sends what peers cannot read in place to ranks 1 to 5; one thread drives them all.
class SharedPipe : public testing::Test {
 protected:
  static constexpr int kRanks = 6;
  static constexpr std::size_t kBytes = 1'000'000;

  void SetUp() override {
    Members members;
    for (const ShmRank& rank : ranks_) members.push_back(rank.member);
    for (std::size_t i = 0; i < kRanks; ++i) transports_[i] = ranks_[i].join(members);
    std::vector<std::thread> threads;
    for (int i = 0; i < kRanks; ++i) {
      threads.emplace_back([this, i] {
        std::vector<Rank> peers;
        for (int j = 0; j < kRanks; ++j) {
          if (j != i) peers.emplace_back(j);
        }
        EXPECT_TRUE(at(i).connect(peers, Deadline::never()));
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (auto& target : targets_) target.resize(kBytes);
  }

  ShmTransport& at(int rank) { return *transports_[static_cast<std::size_t>(rank)]; }
  std::vector<std::byte>& target(int rank) { return targets_[static_cast<std::size_t>(rank)]; }
  void send(int to, const std::vector<std::byte>& source) {
    sends_[static_cast<std::size_t>(to)] = send_to(to, 1, source.data(), kBytes);
    at(0).post(sends_[static_cast<std::size_t>(to)]);
  }
  void receive(int to) {
    receives_[static_cast<std::size_t>(to)] = receive_from(0, 1, target(to).data(), kBytes);
    at(to).post(receives_[static_cast<std::size_t>(to)]);
  }
  void drive(std::initializer_list<int> ranks) {
    for (int i = 0; i < 100; ++i) {
      for (const int rank : ranks) (void)at(rank).progress();
    }
  }
  Bytes moved(int to) const { return receives_[static_cast<std::size_t>(to)].moved; }
  /// What waits for a send sees by this that it moves.
  void expect_staged(int to, Bytes bytes) const {
    EXPECT_EQ(sends_[static_cast<std::size_t>(to)].moved, bytes) << to;
  }
  void expect_sent(int to) const {
    EXPECT_EQ(sends_[static_cast<std::size_t>(to)].state, TransferState::kDone) << to;
  }
  void expect_received(int to, std::byte value) {
    EXPECT_EQ(receives_[static_cast<std::size_t>(to)].state, TransferState::kDone) << to;
    EXPECT_EQ(std::ranges::count(target(to), value), static_cast<std::ptrdiff_t>(kBytes)) << to;
  }
  /// Of rank 0.
  const shm::Entry* entries() {
    const std::byte* memory = ranks_[0].memory->base();
    const auto* header = reinterpret_cast<const shm::Header*>(memory);
    return reinterpret_cast<const shm::Entry*>(memory + header->entries);
  }
  /// Where the pipes of rank 0 are whose entries have one.
  std::set<std::uint64_t> pipes() {
    std::set<std::uint64_t> offsets;
    for (std::size_t i = 0; i < shm::kEntryCount; ++i) offsets.insert(entries()[i].pipe);
    offsets.erase(0);
    return offsets;
  }

  std::array<ShmRank, kRanks> ranks_{ShmRank(0), ShmRank(1), ShmRank(2),
                                     ShmRank(3), ShmRank(4), ShmRank(5)};
  std::array<std::unique_ptr<ShmTransport>, kRanks> transports_;
  std::array<std::vector<std::byte>, kRanks> targets_;
  std::array<Send, kRanks> sends_;
  std::array<Receive, kRanks> receives_;
  std::vector<std::byte> source_ = std::vector<std::byte>(kBytes, std::byte{1});
};

// Goal: one source for several peers is staged once, and none of them misses a byte.
// Method: count the pipes; let one receiver run ahead, which may not be further than a pipe.
TEST_F(SharedPipe, OneSourceTakesOnePipe) {
  for (int to = 1; to < kRanks; ++to) send(to, source_);
  EXPECT_EQ(pipes().size(), 1U);
  receive(1);
  drive({0, 1});
  EXPECT_EQ(moved(1), Bytes{shm::pipe_bytes(kRanks, 0)});
  for (int to = 1; to < kRanks; ++to) expect_staged(to, Bytes{shm::pipe_bytes(kRanks, 0)});
  for (int to = 2; to < kRanks; ++to) receive(to);
  drive({0, 1, 2, 3, 4, 5});
  for (int to = 1; to < kRanks; ++to) {
    expect_sent(to);
    expect_received(to, std::byte{1});
  }
}

// Whether only one rank sends, the length of its messages, and whether that is long.
using Message = std::tuple<bool, std::size_t, bool>;
class LongPipe : public SharedPipe, public ::testing::WithParamInterface<Message> {};

// Goal: the first reader of a long message may be further ahead than one of a short message, and
// all of them get it whole; the long pipe has huge pages where there are any. A second long one,
// meanwhile, takes a pipe as short ones do. Method: two messages of one length; of the first, rank
// 2 reads later.
TEST_P(LongPipe, CarriesWhatIsLong) {
  const auto [one_sends, bytes, is_long] = GetParam();
  std::vector<std::byte> first(bytes), second(bytes, std::byte{7});
  for (std::size_t i = 0; i < bytes; ++i) first[i] = static_cast<std::byte>(i / 1000 % 251);
  for (int to = 1; to <= 3; ++to) {
    const auto at_peer = static_cast<std::size_t>(to);
    targets_[at_peer].assign(bytes, std::byte{0});
    sends_[at_peer] = send_to(to, 1, (to == 3 ? second : first).data(), bytes);
    receives_[at_peer] = receive_from(0, 1, targets_[at_peer].data(), bytes);
    sends_[at_peer].one_sends = receives_[at_peer].one_sends = one_sends;
    at(0).post(sends_[at_peer]);
    if (to != 2) at(to).post(receives_[at_peer]);
  }
  drive({0, 1, 3});
  EXPECT_EQ(moved(1), Bytes{is_long ? shm::kLongPipeBytes : shm::pipe_bytes(kRanks, 0)});
  EXPECT_GT(moved(3), Bytes{0});
  const bool huge = is_long && has_huge_pages();
  EXPECT_EQ(huge_kib(ranks_[0].memory->base()), huge ? shm::kLongPipeBytes / 1024 : 0);
  at(2).post(receives_[2]);
  for (int i = 0; i < 20; ++i) drive({0, 1, 2, 3});
  for (int to = 1; to <= 3; ++to) {
    expect_sent(to);
    EXPECT_EQ(target(to), to == 3 ? second : first) << to;
  }
}

constexpr std::size_t kMiB = std::size_t{1} << 20;
INSTANTIATE_TEST_SUITE_P(Lengths, LongPipe,
                         ::testing::Values(Message{true, 8 * kMiB, true},
                                           Message{true, 7 * kMiB, false},
                                           Message{false, 32 * kMiB, true},
                                           Message{false, 8 * kMiB, false}));

// Goal: other sources have pipes of their own, and wait for nobody else's reader.
// Method: two sources; only one of their receivers is there.
TEST_F(SharedPipe, AnotherSourceTakesAnother) {
  const std::vector<std::byte> other(kBytes, std::byte{2});
  send(1, source_);
  send(2, other);
  EXPECT_EQ(pipes().size(), 2U);
  receive(2);
  drive({0, 2});
  expect_sent(2);
  expect_received(2, std::byte{2});
}

// Goal: whoever is an operation ahead of all its peers waits for none of them to send the next.
// Method: two operations with a source of its own for each peer, no receive anywhere.
TEST_F(SharedPipe, TwoOperationsFindPipesAtOnce) {
  constexpr std::size_t kSmall = 10'000, kSends = std::size_t{2} * (kRanks - 1);
  std::array<Send, kSends> sends;
  for (std::size_t i = 0; i < kSends; ++i) {
    const auto to = static_cast<int>(1 + i % (kRanks - 1));
    const auto operation = static_cast<std::uint32_t>(1 + i / (kRanks - 1));
    sends[i] = send_to(to, operation, source_.data() + i * kSmall, kSmall);
    at(0).post(sends[i]);
  }
  drive({0});
  EXPECT_EQ(pipes().size(), kSends);
  for (const Send& sent : sends) EXPECT_EQ(sent.state, TransferState::kDone);
}

// Goal: messages one after the other touch the memory of one pipe only, each a block behind the one
// before, whatever lay there before.
TEST_F(SharedPipe, OneAfterTheOtherTakeTheFirst) {
  std::set<std::uint64_t> seen;
  for (std::uint32_t i = 1; i <= 5; ++i) {
    constexpr std::size_t kSmall = 10'000;
    const int to = 1 + static_cast<int>(i) % (kRanks - 1);
    Send sent = send_to(to, i, source_.data(), kSmall);
    Receive received = receive_from(0, i, target(to).data(), kSmall);
    at(0).post(sent);
    at(to).post(received);
    drive({0, to});
    ASSERT_EQ(received.state, TransferState::kDone);
    seen.merge(pipes());
    // One entry at a time is in use, so all of them take the same.
    EXPECT_EQ(entries()[0].first, 2 * (i - 1)) << i;
  }
  EXPECT_EQ(seen.size(), 1U);
}

// Goal: what a source holds later is not taken for what it held before.
// Method: small enough to be staged before anyone reads it; written again; sent to another rank.
TEST_F(SharedPipe, SourceMayChangeOnceItIsStaged) {
  constexpr std::size_t kSmall = 10'000;
  std::fill(target(1).begin(), target(1).end(), std::byte{0});
  Send first = send_to(1, 1, source_.data(), kSmall),
       second = send_to(2, 1, source_.data(), kSmall);
  Receive early = receive_from(0, 1, target(1).data(), kSmall);
  Receive late = receive_from(0, 1, target(2).data(), kSmall);
  at(0).post(first);
  drive({0});
  ASSERT_EQ(first.state, TransferState::kDone);
  std::ranges::fill(source_, std::byte{5});
  at(0).post(second);
  at(1).post(early);
  at(2).post(late);
  drive({0, 1, 2});
  EXPECT_EQ(late.state, TransferState::kDone);
  EXPECT_EQ(std::count(target(1).begin(), target(1).begin() + kSmall, std::byte{1}), kSmall);
  EXPECT_EQ(std::count(target(2).begin(), target(2).begin() + kSmall, std::byte{5}), kSmall);
}

// Goal: who fails in the middle holds up nobody else on the pipe.
// Method: one reader fails before it has read anything, one in the middle.
TEST_F(SharedPipe, FailedReadersAreNotWaitedFor) {
  for (int to = 1; to < kRanks; ++to) send(to, source_);
  receive(1);
  receive(2);
  drive({0, 1, 2});
  EXPECT_LT(moved(1), Bytes{kBytes});
  for (int to = 2; to < kRanks; ++to) at(0).peer_failed(Rank{to});
  drive({0, 1});
  expect_sent(1);
  expect_received(1, std::byte{1});
}

// Goal: a shared pipe is free again after its operation ended, however it did.
// Method: more operations than there are pipes, cancelled with and without a reader in the middle.
TEST_F(SharedPipe, CancelFreesIt) {
  for (std::uint32_t i = 2; i < 2 + 4 * shm::pipe_count(kRanks); ++i) {
    std::array<Send, 2> sends = {send_to(1, i, source_.data(), kBytes),
                                 send_to(2, i, source_.data(), kBytes)};
    Receive reader = receive_from(0, i, target(1).data(), kBytes);
    for (Send& send : sends) at(0).post(send);
    if (i % 2 == 0) at(1).post(reader);
    drive({0, 1, 2});
    for (const int rank : {0, 1, 2}) EXPECT_TRUE(at(rank).cancel({1, i}));
    drive({0, 1, 2});
  }
  for (int to = 1; to < kRanks; ++to) send(to, source_);
  EXPECT_EQ(pipes().size(), 1U);
  for (int to = 1; to < kRanks; ++to) receive(to);
  drive({0, 1, 2, 3, 4, 5});
  for (int to = 1; to < kRanks; ++to) expect_received(to, std::byte{1});
}

}  // namespace
}  // namespace farandole
