// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "transport/shm/layout.hpp"
#include "unit/transport/shm/ranks.hpp"

namespace farandole {
namespace {

/// Two connected ranks that one thread drives step by step. The parameter: stage every message.
class ShmCancel : public testing::TestWithParam<bool> {
 protected:
  static constexpr std::size_t kBytes = 3'000'000;

  void SetUp() override {
    const Members members = {sender_.member, receiver_.member};
    const ShmTransport::Options options{.peer_memory = !GetParam()};
    from_ = sender_.join(members, options);
    to_ = receiver_.join(members, options);
    const Rank zero[] = {Rank{0}}, one[] = {Rank{1}};
    std::thread other([&] { EXPECT_TRUE(to_->connect(zero, Deadline::never())); });
    EXPECT_TRUE(from_->connect(one, Deadline::never()));
    other.join();
    source_ = *sender_.memory->allocate(Bytes{kBytes});
    target_.resize(kBytes);
  }
  void step() {
    (void)from_->progress();
    (void)to_->progress();
  }
  void settle() {
    for (int i = 0; i < 100; ++i) step();
  }
  /// A message of a fresh operation arrives whole.
  void expect_works() {
    const std::uint32_t sequence = next_++;
    std::fill_n(source_, kBytes, std::byte{3});
    Send send = send_to(1, sequence, source_, kBytes);
    Receive receive = receive_from(0, sequence, target_.data(), kBytes);
    from_->post(send);
    to_->post(receive);
    settle();
    EXPECT_EQ(send.state, TransferState::kDone);
    EXPECT_EQ(receive.state, TransferState::kDone);
    EXPECT_EQ(std::ranges::count(target_, std::byte{3}), static_cast<std::ptrdiff_t>(kBytes));
  }

  ShmRank sender_{0}, receiver_{1};
  std::unique_ptr<ShmTransport> from_, to_;
  std::byte* source_ = nullptr;
  std::vector<std::byte> target_;
  std::uint32_t next_ = 1'000'000;
};

// Goal: a receiver never takes what it reads from a cancelled source for the message, and its
// receive ends with its own cancel().
// Method: cancel the send at each moment of its way and use its source again at once.
TEST_P(ShmCancel, SourceMayBeUsedAgainAtOnce) {
  for (std::uint32_t steps = 0;; ++steps) {
    std::fill_n(source_, kBytes, std::byte{1});
    Send send = send_to(1, steps, source_, kBytes);
    Receive receive = receive_from(0, steps, target_.data(), kBytes);
    from_->post(send);
    to_->post(receive);
    for (std::uint32_t i = 0; i < steps; ++i) step();
    if (send.state == TransferState::kDone || receive.state == TransferState::kDone) {
      EXPECT_GE(steps, 3U) << "no moment in the middle";
      return;
    }
    ASSERT_EQ(send.state, TransferState::kActive);
    EXPECT_TRUE(from_->cancel({1, steps}));
    EXPECT_EQ(send.state, TransferState::kFailed);
    std::fill_n(source_, kBytes, std::byte{2});
    settle();
    EXPECT_EQ(receive.state, TransferState::kActive) << "after " << steps << " steps";
    EXPECT_EQ(std::ranges::count(target_, std::byte{2}), 0);
    EXPECT_TRUE(to_->cancel({1, steps}));
    EXPECT_EQ(receive.state, TransferState::kFailed);
    expect_works();
  }
}

// Goal: cancelling gives back every entry and pipe, on whichever side and in whatever state.
// Method: far more cancelled messages than there are entries, a third of them never received.
TEST_P(ShmCancel, NothingIsUsedUp) {
  for (std::uint32_t i = 0; i < 3 * shm::kEntryCount; ++i) {
    Send send = send_to(1, i, source_, kBytes);
    Receive receive = receive_from(0, i, target_.data(), kBytes);
    from_->post(send);
    if (i % 3 != 0) to_->post(receive);
    for (std::uint32_t k = 0; k < i % 4; ++k) step();
    ShmTransport& first = i % 2 == 0 ? *from_ : *to_;
    ShmTransport& second = i % 2 == 0 ? *to_ : *from_;
    EXPECT_TRUE(first.cancel({1, i}));
    step();
    EXPECT_TRUE(second.cancel({1, i}));
    EXPECT_NE(send.state, TransferState::kActive);
    EXPECT_NE(receive.state, TransferState::kActive);
    step();
  }
  expect_works();
}

// Goal: sends wait when all entries are in use, in order, and cancel() reaches them there.
// Method: more sends than entries without a receive; cancel every second, receive the others.
TEST_P(ShmCancel, WaitingSendsAreCancelledToo) {
  constexpr std::uint32_t kCount = 2 * shm::kEntryCount + 100;
  constexpr std::size_t kEach = 5000;
  std::vector<Send> sends(kCount);
  for (std::uint32_t i = 0; i < kCount; ++i) {
    sends[i] = send_to(1, i, source_, kEach);
    from_->post(sends[i]);
  }
  settle();
  for (std::uint32_t i = kCount; i-- > kCount - 100;) {
    EXPECT_TRUE(from_->cancel({1, i}));
    EXPECT_EQ(sends[i].state, TransferState::kFailed);
  }
  for (std::uint32_t i = 0; i < kCount - 100; ++i) {
    Receive receive = receive_from(0, i, target_.data(), kEach);
    to_->post(receive);
    for (int k = 0; k < 20 && receive.state == TransferState::kActive; ++k) step();
    ASSERT_EQ(receive.state, TransferState::kDone) << i;
  }
  settle();
  for (std::uint32_t i = 0; i < kCount - 100; ++i) {
    EXPECT_EQ(sends[i].state, TransferState::kDone);
  }
}

INSTANTIATE_TEST_SUITE_P(InPlaceAndStaged, ShmCancel, testing::Bool(),
                         [](const auto& test) { return test.param ? "staged" : "in_place"; });

}  // namespace
}  // namespace farandole
