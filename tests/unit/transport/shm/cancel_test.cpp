// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "transport/shm/layout.hpp"
#include "unit/base/full_run.hpp"
#include "unit/transport/shm/ranks.hpp"

namespace farandole {
namespace {

enum class Way { kReadInPlace, kStaged, kPut, kCopied, kCopiedPut, kShared };

/// Two connected ranks that one thread drives step by step. The parameter: how messages travel.
class ShmCancel : public testing::TestWithParam<Way> {
 protected:
  const bool puts_ = GetParam() == Way::kPut || GetParam() == Way::kCopiedPut;
  const bool by_kernel_ = GetParam() >= Way::kCopied;
  const std::size_t bytes_ = puts_ ? 1'000'000 : 6'000'000;

  void SetUp() override {
    const Members members = {sender_.member, receiver_.member};
    const ShmTransport::Options options{.all_memory = by_kernel_};
    from_ = sender_.join(members, options, GetParam() != Way::kStaged);
    to_ = receiver_.join(members, options, GetParam() != Way::kStaged);
    connect(*from_, *to_);
    if (by_kernel_) {
      heap_.resize(2 * bytes_);
      source_ = heap_.data();
      target_ = {heap_.data() + bytes_, bytes_};
      return;
    }
    source_ = *sender_.memory->allocate(Bytes{bytes_});
    target_ = {*receiver_.memory->allocate(Bytes{bytes_}), bytes_};
  }
  Send send_of(std::uint32_t sequence, std::size_t bytes) {
    Send send = send_to(1, sequence, source_, bytes);
    send.one_sends = GetParam() == Way::kShared;
    return send;
  }
  Receive receive_of(std::uint32_t sequence, std::size_t bytes) {
    Receive receive = receive_from(0, sequence, target_.data(), bytes);
    receive.peer_has_read = receive.peer_has_made = puts_;
    receive.one_sends = GetParam() == Way::kShared;
    return receive;
  }
  // By calls that ThreadSanitizer looks at as a whole: loops over all bytes took it minutes.
  void fill(std::byte* data, int value) const { std::memset(data, value, bytes_); }
  bool target_is_all(int value) const {
    const std::byte* data = target_.data();
    return data[0] == static_cast<std::byte>(value) && std::memcmp(data, data + 1, bytes_ - 1) == 0;
  }
  /// Both ranks go on until the transport says that it is done with the operation.
  void cancel(ShmTransport& transport, std::uint32_t sequence) {
    for (int i = 0; !transport.cancel({1, sequence}); ++i) {
      ASSERT_LT(i, 100) << "never clear";
      step();
    }
  }
  void step() {
    (void)from_->progress();
    (void)to_->progress();
  }
  void settle() {
    for (int i = 0; i < 100; ++i) step();
  }
  /// Posts both and takes so many steps; true if there was no moment left in the middle.
  bool arrives(Send& send, Receive& receive, std::uint32_t steps) {
    from_->post(send);
    to_->post(receive);
    for (std::uint32_t i = 0; i < steps; ++i) step();
    const bool arrived =
        send.state == TransferState::kDone || receive.state == TransferState::kDone;
    EXPECT_TRUE(!arrived || steps >= 3) << "no moment in the middle";
    return arrived;
  }
  /// A message of a fresh operation arrives whole.
  void expect_works() {
    const std::uint32_t sequence = next_++;
    fill(source_, 3);
    Send send = send_of(sequence, bytes_);
    Receive receive = receive_of(sequence, bytes_);
    from_->post(send);
    to_->post(receive);
    settle();
    EXPECT_EQ(send.state, TransferState::kDone);
    EXPECT_EQ(receive.state, TransferState::kDone);
    EXPECT_TRUE(target_is_all(3));
  }

  ShmRank sender_{0}, receiver_{1};
  std::unique_ptr<ShmTransport> from_, to_;
  std::vector<std::byte> heap_;
  std::byte* source_ = nullptr;
  std::span<std::byte> target_;
  std::uint32_t next_ = 1'000'000;
};

// Goal: a receiver never takes what it reads from a cancelled source for the message, and its
// receive ends with its own cancel().
// Method: cancel the send at each moment of its way and use its source again at once.
TEST_P(ShmCancel, SourceMayBeUsedAgainAtOnce) {
  for (std::uint32_t steps = 0;; ++steps) {
    fill(source_, 1);
    Send send = send_of(steps, bytes_);
    Receive receive = receive_of(steps, bytes_);
    if (arrives(send, receive, steps)) return;
    ASSERT_EQ(send.state, TransferState::kActive);
    EXPECT_TRUE(from_->cancel({1, steps}));
    EXPECT_EQ(send.state, TransferState::kFailed);
    fill(source_, 2);
    settle();
    EXPECT_EQ(receive.state, TransferState::kActive) << "after " << steps << " steps";
    EXPECT_EQ(std::memchr(target_.data(), 2, bytes_), nullptr);
    EXPECT_TRUE(to_->cancel({1, steps}));
    EXPECT_EQ(receive.state, TransferState::kFailed);
    expect_works();
  }
}

// Goal: a receiver does not take a piece for the message if its source was used again while the
// piece was read, be it the last one. Method: the send is cancelled, and its source written, while
// the receiver works on that piece.
TEST_P(ShmCancel, SourceMayBeUsedAgainWhileItsLastPieceIsRead) {
  if (GetParam() != Way::kReadInPlace && GetParam() != Way::kCopied) {
    return;  // The sender of what is staged or put has ended by then.
  }
  fill(source_, 1);
  Send send = send_of(1, bytes_);
  Receive receive = receive_of(1, bytes_);
  struct Canceller {
    ShmTransport& sender;
    std::byte* source;
    std::size_t bytes, seen = 0;
  } canceller{*from_, source_, bytes_};
  receive.context = &canceller;
  receive.consume = [](void* context, Bytes offset, const std::byte*, Bytes piece) {
    auto& self = *static_cast<Canceller*>(context);
    self.seen = (offset + piece).value();
    if (self.seen < self.bytes) return;
    EXPECT_TRUE(self.sender.cancel({1, 1}));
    std::memset(self.source, 2, self.bytes);
  };
  from_->post(send);
  to_->post(receive);
  settle();
  EXPECT_EQ(canceller.seen, bytes_);
  EXPECT_EQ(send.state, TransferState::kFailed);
  EXPECT_EQ(receive.state, TransferState::kActive);
  EXPECT_TRUE(to_->cancel({1, 1}));
  EXPECT_EQ(receive.state, TransferState::kFailed);
  expect_works();
}

// Goal: once cancel() is through, nothing is written to the target, and the sender ends.
// Method: cancel the receive at each moment of its way and use its target again at once.
TEST_P(ShmCancel, TargetMayBeUsedAgainOnceClear) {
  for (std::uint32_t steps = 0;; ++steps) {
    fill(source_, 1);
    Send send = send_of(steps, bytes_);
    Receive receive = receive_of(steps, bytes_);
    if (arrives(send, receive, steps)) return;
    cancel(*to_, steps);
    EXPECT_NE(receive.state, TransferState::kActive);
    fill(target_.data(), 2);
    settle();
    EXPECT_TRUE(target_is_all(2));
    EXPECT_EQ(send.state, TransferState::kDone) << "after " << steps << " steps";
    cancel(*from_, steps);
    expect_works();
  }
}

// Goal: as before, for a sender that is in the middle of a piece.
// Method: the sender runs in a thread of its own; cancel at some moment, many times.
TEST_P(ShmCancel, TargetMayBeUsedAgainOnceClearWhileTheSenderRuns) {
  fill(source_, 1);
  const std::uint32_t rounds = full_run() ? 200 : 100;
  for (std::uint32_t round = 0; round < rounds; ++round) {
    Send send = send_of(round, bytes_);
    Receive receive = receive_of(round, bytes_);
    std::thread sender([&] {
      from_->post(send);
      while (send.state == TransferState::kActive) (void)from_->progress();
    });
    to_->post(receive);
    while (!to_->progress()) {
    }
    const std::uint32_t polls = by_kernel_ ? round % 4 : round % 50 * 20;  // some before its end
    for (std::uint32_t i = 0; i < polls; ++i) (void)to_->progress();
    while (!to_->cancel({1, round})) (void)to_->progress();
    fill(target_.data(), 2);
    EXPECT_NE(receive.state, TransferState::kActive);
    // A message that is announced after the cancel() is discarded by progress().
    std::atomic<bool> ended = false;
    std::thread receiver([&] {
      while (!ended) (void)to_->progress();
    });
    sender.join();
    ended = true;
    receiver.join();
    ASSERT_TRUE(target_is_all(2)) << "round " << round;
  }
}

// Goal: a sender that was believed dead and goes on writes nothing to a target that is used again.
// Method: give it up in the middle of a message.
TEST_P(ShmCancel, TargetMayBeUsedAgainOnceTheSenderIsGivenUp) {
  fill(target_.data(), 2);
  Send send = send_of(1, bytes_);
  Receive receive = receive_of(1, bytes_);
  from_->post(send);
  to_->post(receive);
  step();
  step();
  ASSERT_EQ(receive.state, TransferState::kActive);
  EXPECT_FALSE(target_is_all(2));
  to_->peer_failed(Rank{0});
  EXPECT_EQ(receive.error, ErrorKind::kRankFailed);
  fill(target_.data(), 2);
  for (int i = 0; i < 100; ++i) (void)from_->progress();
  EXPECT_TRUE(target_is_all(2));
}

// Goal: a receiver that was believed dead and goes on does not take a source that is used again for
// the message.
// Method: give it up in the middle of a message.
TEST_P(ShmCancel, SourceMayBeUsedAgainOnceTheReceiverIsGivenUp) {
  fill(source_, 1);
  Send send = send_of(1, bytes_);
  Receive receive = receive_of(1, bytes_);
  from_->post(send);
  to_->post(receive);
  step();
  step();
  ASSERT_EQ(receive.state, TransferState::kActive);
  from_->peer_failed(Rank{1});
  EXPECT_EQ(send.error, ErrorKind::kRankFailed);
  fill(source_, 2);
  for (int i = 0; i < 100; ++i) (void)to_->progress();
  EXPECT_EQ(receive.state, TransferState::kActive);
  EXPECT_EQ(std::memchr(target_.data(), 2, bytes_), nullptr);
}

// Goal: cancelling gives back every entry and pipe, on whichever side and in whatever state.
// Method: far more cancelled messages than there are entries, a third of them never received.
TEST_P(ShmCancel, NothingIsUsedUp) {
  for (std::uint32_t i = 0; i < 3 * shm::kEntryCount; ++i) {
    Send send = send_of(i, bytes_);
    Receive receive = receive_of(i, bytes_);
    from_->post(send);
    if (i % 3 != 0) to_->post(receive);
    for (std::uint32_t k = 0; k < i % 4; ++k) step();
    ShmTransport& first = i % 2 == 0 ? *from_ : *to_;
    ShmTransport& second = i % 2 == 0 ? *to_ : *from_;
    cancel(first, i);
    step();
    cancel(second, i);
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
    sends[i] = send_of(i, kEach);
    from_->post(sends[i]);
  }
  settle();
  for (std::uint32_t i = kCount; i-- > kCount - 100;) {
    EXPECT_TRUE(from_->cancel({1, i}));
    EXPECT_EQ(sends[i].state, TransferState::kFailed);
  }
  for (std::uint32_t i = 0; i < kCount - 100; ++i) {
    Receive receive = receive_of(i, kEach);
    to_->post(receive);
    for (int k = 0; k < 20 && receive.state == TransferState::kActive; ++k) step();
    ASSERT_EQ(receive.state, TransferState::kDone) << i;
  }
  settle();
  for (std::uint32_t i = 0; i < kCount - 100; ++i) {
    EXPECT_EQ(sends[i].state, TransferState::kDone);
  }
}

std::string name_of(const testing::TestParamInfo<Way>& way) {
  constexpr const char* kNames[] = {"in_place", "staged", "put", "copied", "copied_put", "shared"};
  return kNames[static_cast<std::size_t>(way.param)];
}

INSTANTIATE_TEST_SUITE_P(AllWays, ShmCancel,
                         testing::Values(Way::kReadInPlace, Way::kStaged, Way::kPut, Way::kCopied,
                                         Way::kCopiedPut, Way::kShared),
                         name_of);

}  // namespace
}  // namespace farandole
