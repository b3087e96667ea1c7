// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "transport/shm/layout.hpp"
#include "unit/transport/shm/ranks.hpp"

namespace farandole {
namespace {

using namespace shm;

TEST(ShmRing, SlotsTakeTheLinesTheyNeed) {
  const std::size_t lines = line_count(2);
  EXPECT_EQ(line_after(0, 0, lines), 1u);
  EXPECT_EQ(line_after(0, 16, lines), 1u);
  EXPECT_EQ(line_after(0, 17, lines), 2u);
  EXPECT_EQ(line_after(0, 64, lines), 2u);
  EXPECT_EQ(line_after(0, 65, lines), 3u);
  // What a core reads ahead of lies apart from the next one.
  EXPECT_EQ(line_after(0, kReadAheadMin - 1, lines), 1 + 4u);
  EXPECT_EQ(line_after(0, kReadAheadMin, lines), 1 + 4 + kGapLines);
  EXPECT_EQ(line_after(5, kInSlotMax, lines), 5 + kSlotLinesMax + kGapLines);
  // The last of a lap may hang over; the next one begins the next lap.
  EXPECT_EQ(line_after(lines - 1, 0, lines), lines);
  EXPECT_EQ(line_after(lines - 1, kInSlotMax, lines), lines);
  EXPECT_EQ(line_after(3 * lines - 10, 1000, lines), 3 * lines);
  EXPECT_EQ(line_after(3 * lines - 24, 1000, lines), 3 * lines);
  EXPECT_LE(lines - 1 + kSlotLinesMax, with_overhang(lines));
}

TEST(ShmRing, ManyRanksHaveShortRings) {
  for (const std::size_t ranks : {0, 1, 2, 3, 4, 8, 15, 16, 17, 100, 128, 10'000}) {
    const std::size_t lines = line_count(ranks), others = std::max<std::size_t>(ranks, 2) - 1;
    EXPECT_GE(lines, 7 * (1 + in_slot_max(ranks) / kLine + kGapLines));
    EXPECT_TRUE(std::has_single_bit(lines));
    if (ranks <= 15) {
      EXPECT_LE((others + 1) * others * lines * kLine, std::size_t{8} << 20) << ranks;
    }
  }
}

TEST(ShmPipe, MessagesLieABlockApart) {
  EXPECT_EQ(block_bytes(4097), 8192u);
  EXPECT_EQ(block_bytes(16'384), 16'384u);
  EXPECT_EQ(block_bytes(20'000), 16'384u);
  EXPECT_EQ(block_bytes(1 << 20), kBlockBytesMax);
  EXPECT_EQ(block_after(3, 1), 5u);
  EXPECT_EQ(block_after(3, 16'384), 5u);
  EXPECT_EQ(block_after(3, 16'385), 6u);
  EXPECT_EQ(block_after(0, 1 << 20), 17u);
}

class Ring : public testing::Test {
 protected:
  void SetUp() override {
    const Members members = {first_.member, second_.member};
    sender_ = first_.join(members);
    receiver_ = second_.join(members);
    const Rank zero[] = {Rank{0}}, one[] = {Rank{1}};
    std::thread other([&] { EXPECT_TRUE(receiver_->connect(zero, Deadline::never())); });
    EXPECT_TRUE(sender_->connect(one, Deadline::never()));
    other.join();
  }
  ShmRank first_{0}, second_{1};
  std::unique_ptr<ShmTransport> sender_, receiver_;
};

// Goal: messages of all eager sizes keep their bytes and their order over many laps, whether the
// sender is far ahead, stopped by a full ring, or waited for. Payloads are what would be marks of
// their lines in the next lap, were there no token, and must not be taken for slots then.
// Method: sizes at random with the extremes among them, each burst sent before any is received.
TEST_F(Ring, KeepsMessagesOfAllSizesOverManyLaps) {
  const std::size_t lines = line_count(2);
  std::mt19937_64 random(7);
  std::uint32_t sequence = 0;
  std::uint64_t line = 0;  // where the next slot begins
  for (const std::size_t burst : {1, 3, 40, 300, 1, 2000, 5}) {
    std::vector<std::vector<std::uint64_t>> sent, received;
    std::vector<Send> sends;
    std::vector<Receive> receives;
    for (std::size_t i = 0; i < burst; ++i) {
      const std::size_t words = kInSlotMax / 8;
      const std::size_t size = i % 7 == 3 ? words : i % 5 == 2 ? random() % 4 : random() % words;
      auto& payload = sent.emplace_back(size);
      for (std::size_t word = 0; word < size; ++word) {
        const std::size_t in_line = 8 * size <= sizeof(Slot::brief) ? 0 : 1 + 8 * word / kLine;
        payload[word] = mark_of(line + in_line + lines, 0);
      }
      line = line_after(line, 8 * size, lines);
      received.emplace_back(size);
    }
    for (std::size_t i = 0; i < burst; ++i) {
      const std::size_t bytes = sent[i].size() * 8;
      const auto* source = reinterpret_cast<const std::byte*>(sent[i].data());
      auto* target = reinterpret_cast<std::byte*>(received[i].data());
      sends.push_back(send_to(1, sequence, source, bytes));
      receives.push_back(receive_from(0, sequence++, target, bytes));
    }
    for (Send& send : sends) sender_->post(send);
    for (Receive& receive : receives) receiver_->post(receive);
    for (int i = 0; i < 100'000 && receives.back().state != TransferState::kDone; ++i) {
      (void)receiver_->progress();
      (void)sender_->progress();
    }
    for (std::size_t i = 0; i < burst; ++i) {
      ASSERT_EQ(sends[i].state, TransferState::kDone) << i << " of " << burst;
      ASSERT_EQ(receives[i].state, TransferState::kDone) << i << " of " << burst;
      ASSERT_EQ(received[i], sent[i]) << i << " of " << burst;
    }
  }
}

// Goal: between two ranks a slot holds up to kInSlotMax bytes, which are sent at once; but what the
// peer reads in place, library-owned memory, is not copied there from kInSlot on.
TEST_F(Ring, SlotsHoldWhatThePeerDoesNotReadInPlace) {
  const std::vector<std::byte> ordinary(kInSlotMax + 1);
  const auto owned = first_.memory->allocate(Bytes{kInSlotMax + 1});
  ASSERT_TRUE(owned);
  std::uint32_t sequence = 0;
  const auto ends_at_once = [&](const std::byte* source, std::size_t bytes) {
    std::vector<std::byte> got(bytes);
    Send send = send_to(1, sequence, source, bytes);
    Receive receive = receive_from(0, sequence++, got.data(), bytes);
    sender_->post(send);
    const bool at_once = send.state == TransferState::kDone;
    receiver_->post(receive);
    for (int i = 0; i < 1000 && receive.state != TransferState::kDone; ++i) {
      (void)receiver_->progress();
      (void)sender_->progress();
    }
    for (int i = 0; i < 10; ++i) (void)sender_->progress();
    EXPECT_EQ(receive.state, TransferState::kDone);
    EXPECT_EQ(send.state, TransferState::kDone);
    return at_once;
  };
  EXPECT_TRUE(ends_at_once(ordinary.data(), kInSlotMax));
  EXPECT_FALSE(ends_at_once(ordinary.data(), kInSlotMax + 1));
  EXPECT_TRUE(ends_at_once(*owned, kInSlot));
  EXPECT_FALSE(ends_at_once(*owned, kInSlot + 1));
}

/// Twice as many messages as a ring holds, all sent, before any is awaited.
class FullRing : public Ring {
 protected:
  void SetUp() override {
    Ring::SetUp();
    for (std::uint32_t i = 0; i < kCount; ++i) {
      sends_.push_back(send_to(1, i, source_.data(), kInSlotMax));
      receives_.push_back(receive_from(0, i, got_.data(), kInSlotMax));
    }
    for (Send& send : sends_) sender_->post(send);
    progress();
  }
  void progress() {
    for (std::size_t i = 0; i < 2 * kCount; ++i) {
      (void)receiver_->progress();
      (void)sender_->progress();
    }
  }
  static constexpr std::size_t kCount = 2 * line_count(2) * kLine / kInSlotMax;
  const std::vector<std::byte> source_ = std::vector<std::byte>(kInSlotMax);
  std::vector<std::byte> got_ = std::vector<std::byte>(kInSlotMax);
  std::vector<Send> sends_;
  std::vector<Receive> receives_;
};

// Goal: what nobody awaits stays in the ring instead of being copied aside, so that a sender that
// is a lap ahead waits; once it is awaited all of it comes.
TEST_F(FullRing, KeepsWhatNobodyAwaits) {
  EXPECT_EQ(sends_.front().state, TransferState::kDone);
  EXPECT_EQ(sends_.back().state, TransferState::kActive);
  for (Receive& receive : receives_) receiver_->post(receive);
  progress();
  EXPECT_EQ(sends_.back().state, TransferState::kDone);
  for (const Receive& receive : receives_) ASSERT_EQ(receive.state, TransferState::kDone);
}

// Goal: what is of cancelled operations does not stay there.
TEST_F(FullRing, LosesWhatIsCancelled) {
  for (std::uint32_t i = 0; i < kCount; ++i) EXPECT_TRUE(receiver_->cancel({1, i}));
  progress();
  EXPECT_EQ(sends_.back().state, TransferState::kDone);
}

/// How far a transport said that it has read a source.
struct Heard {
  std::vector<std::size_t> ends;
  static void hear(void* context, Bytes end) {
    static_cast<Heard*>(context)->ends.push_back(end.value());
  }
};

// Goal: whoever makes something of a source along with its transfer hears of every part while that
// is in the cache: of all of it, in order, block by block; and of nothing where the peer reads it.
TEST_F(Ring, TellsHowFarASourceIsRead) {
  constexpr std::size_t kBytes = 3'000'001;  // more than a pipe holds
  std::vector<std::byte> ordinary(kBytes), got(kBytes);
  for (std::size_t i = 0; i < kBytes; ++i) ordinary[i] = static_cast<std::byte>(i / 1000);
  const auto owned = first_.memory->allocate(Bytes{kBytes});
  ASSERT_TRUE(owned);
  std::memset(*owned, 6, kBytes);
  const std::byte* sources[] = {ordinary.data(), *owned};
  for (const std::byte* source : sources) {
    Heard heard;
    const std::uint32_t sequence = source == ordinary.data() ? 0 : 1;
    Send send = send_to(1, sequence, source, kBytes);
    send.along = &Heard::hear;
    send.context = &heard;
    Receive receive = receive_from(0, sequence, got.data(), kBytes);
    sender_->post(send);
    receiver_->post(receive);
    for (int i = 0; i < 10'000 && send.state != TransferState::kDone; ++i) {
      (void)receiver_->progress();
      (void)sender_->progress();
    }
    ASSERT_EQ(send.state, TransferState::kDone);
    for (int i = 0; i < 100; ++i) (void)receiver_->progress();
    ASSERT_EQ(receive.state, TransferState::kDone);
    EXPECT_TRUE(std::equal(got.begin(), got.end(), source));
    if (source != ordinary.data()) {
      EXPECT_TRUE(heard.ends.empty());
      continue;
    }
    std::size_t before = 0;
    for (const std::size_t end : heard.ends) {
      EXPECT_GT(end, before);
      EXPECT_LE(end - before, shm::kBlockBytesMax);
      before = end;
    }
    EXPECT_EQ(before, kBytes);
  }
}

}  // namespace
}  // namespace farandole
