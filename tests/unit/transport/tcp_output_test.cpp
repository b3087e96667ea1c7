// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "transport/tcp/output.hpp"
#include "unit/transport/tcp_sockets.hpp"

namespace farandole::tcp {
namespace {

class Ledger final : public OutputHandler {
 public:
  void handed_over(Send& send, Bytes payload) override {
    send.moved += payload;
    order.push_back(&send);
  }
  std::vector<Send*> order;
};

class OutputTest : public testing::Test {
 protected:
  OutputTest() { std::tie(near_, far_) = local_pair(4096); }
  ~OutputTest() override {
    ::close(near_);
    if (far_ >= 0) ::close(far_);
  }

  // Everything the other end gets until the queue is empty.
  std::vector<std::byte> drain() {
    std::vector<std::byte> got;
    std::vector<std::byte> chunk(1 << 16);
    while (true) {
      const bool was_empty = output.empty();
      const bool lost = !was_empty && output.flush(near_, ledger).lost;
      EXPECT_FALSE(lost);
      const auto bytes = ::recv(far_, chunk.data(), chunk.size(), MSG_DONTWAIT);
      if (bytes > 0) got.insert(got.end(), chunk.begin(), chunk.begin() + bytes);
      if (bytes <= 0 && was_empty) return got;
    }
  }

  static Frame message(std::size_t bytes) {
    return Frame{.bytes = bytes, .payload = static_cast<std::uint32_t>(bytes)};
  }

  int near_, far_;
  Output output;
  Ledger ledger;
};

// Goal: frames arrive whole, in order, and are reported once each.
TEST_F(OutputTest, OrderAndCompletion) {
  std::vector<std::byte> data(10000, std::byte{42});
  Send first, second;
  output.push(message(10000), data.data(), &first);
  output.push(Frame{.kind = FrameKind::kRefuse, .id = 9}, nullptr, nullptr);
  output.push(message(0), nullptr, &second);
  const auto got = drain();
  ASSERT_EQ(got.size(), 3 * kFrameBytes + 10000);
  EXPECT_EQ(std::memcmp(got.data(), encode(message(10000)).data(), kFrameBytes), 0);
  EXPECT_EQ(std::memcmp(got.data() + kFrameBytes, data.data(), 10000), 0);
  EXPECT_EQ(
      std::memcmp(got.data() + 2 * kFrameBytes + 10000, encode(message(0)).data(), kFrameBytes), 0);
  EXPECT_EQ(ledger.order, (std::vector<Send*>{&first, &second}));
  EXPECT_EQ(first.moved, Bytes{10000});
  EXPECT_TRUE(output.empty());
}

// Goal: short frames that leave together, and some a little too long for that, are the same stream.
TEST_F(OutputTest, ShortFramesKeepTheirBytes) {
  for (const std::size_t bytes : {0, 1, 600, 611, 612, 613, 900}) {
    std::vector<std::byte> data(3 * bytes), expected;
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 7 + i / 251);
    std::vector<Send> sends(3);
    for (std::size_t i = 0; i < sends.size(); ++i) {
      output.push(message(bytes), data.data() + i * bytes, &sends[i]);
      const auto header = encode(message(bytes));
      expected.insert(expected.end(), header.begin(), header.end());
      expected.insert(expected.end(), data.data() + i * bytes, data.data() + (i + 1) * bytes);
    }
    EXPECT_EQ(drain(), expected) << bytes;
    for (const Send& send : sends) EXPECT_EQ(send.moved, Bytes{bytes});
  }
}

// Goal: a frame that is partly sent when its send is cut is finished, from a copy; one that is
// not begun disappears; others are untouched.
// Method: a socket too small for the frame, and a source that changes after the cut.
TEST_F(OutputTest, CutInTheMiddleKeepsTheStreamInStep) {
  std::vector<std::byte> started(200000, std::byte{1});
  std::vector<std::byte> unstarted(300, std::byte{2});
  std::vector<std::byte> other(300, std::byte{3});
  Send unwanted, wanted;
  output.push(message(started.size()), started.data(), &unwanted);
  output.push(message(unstarted.size()), unstarted.data(), &unwanted);
  output.push(message(other.size()), other.data(), &wanted);
  const auto outcome = output.flush(near_, ledger);
  ASSERT_GT(outcome.bytes, kFrameBytes);
  ASSERT_LT(outcome.bytes, started.size());
  output.cut([&](Send& send) { return &send == &unwanted; });
  std::ranges::fill(started, std::byte{99});
  std::ranges::fill(unstarted, std::byte{99});
  const auto got = drain();
  ASSERT_EQ(got.size(), 2 * kFrameBytes + 200000 + 300);
  EXPECT_EQ(std::ranges::count(std::span(got).subspan(kFrameBytes, 200000), std::byte{1}), 200000);
  EXPECT_EQ(std::ranges::count(std::span(got).last(300), std::byte{3}), 300);
  EXPECT_EQ(ledger.order, (std::vector<Send*>{&wanted}));
}

// Goal: cutting everything leaves an empty queue that can be used again.
TEST_F(OutputTest, CutAllBeforeTheFirstByte) {
  Send send;
  std::byte data{5};
  while (output.room() > 0) output.push(message(1), &data, &send);
  output.cut([](Send&) { return true; });
  EXPECT_TRUE(drain().empty());
  EXPECT_TRUE(output.empty());
  output.push(message(1), &data, &send);
  EXPECT_EQ(drain().size(), kFrameBytes + 1);
}

// Goal: a peer that hung up is an outcome, not a signal.
TEST_F(OutputTest, PeerHungUp) {
  ::close(std::exchange(far_, -1));
  Send send;
  std::byte data{5};
  output.push(message(1), &data, &send);
  EXPECT_TRUE(output.flush(near_, ledger).lost);
  EXPECT_TRUE(ledger.order.empty());
}

}  // namespace
}  // namespace farandole::tcp
