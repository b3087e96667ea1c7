// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/transfer.hpp"

#include <gtest/gtest.h>

#include <array>

namespace farandole {
namespace {

struct Call {
  int count = 0;
  Bytes offset, bytes;
  const std::byte* data = nullptr;
};

// Goal: pieces of a message that is too long for a cache come whole, wherever they lie and end.
// Method: lengths around whole lines at every offset of a line, on both sides; what is around a
// piece stays as it was.
TEST(Receive, CopiesLongMessagesWhole) {
  std::array<std::byte, 300> source, target;
  for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::byte>(i % 251 + 1);
  Receive receive;
  receive.bytes = Bytes{std::size_t{1} << 30};
  receive.target = target.data();
  for (std::size_t offset = 0; offset < 64; ++offset) {
    for (const std::size_t length : {1u, 15u, 63u, 64u, 65u, 128u, 200u}) {
      target.fill(std::byte{0});
      receive.deliver(Bytes{offset}, source.data() + length % 7, Bytes{length});
      for (std::size_t i = 0; i < target.size(); ++i) {
        const bool inside = i >= offset && i < offset + length;
        const std::byte wanted = inside ? source[i - offset + length % 7] : std::byte{0};
        ASSERT_EQ(target[i], wanted) << offset << " " << length << " " << i;
      }
    }
  }
}

// Goal: a piece goes to consume() as it is, or else to its place in the target; no piece of
// length 0 is handed on.
// Method: deliver both ways and look.
TEST(Receive, DeliversToTargetOrConsumer) {
  const std::array<std::byte, 4> data = {std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};
  std::array<std::byte, 8> target{};
  Receive receive;
  receive.target = target.data();
  receive.deliver(Bytes{2}, data.data(), Bytes{4});
  EXPECT_EQ(target[1], std::byte{0});
  EXPECT_EQ(target[2], std::byte{1});
  EXPECT_EQ(target[5], std::byte{4});
  EXPECT_EQ(target[6], std::byte{0});

  Call call;
  receive.context = &call;
  receive.consume = [](void* context, Bytes offset, const std::byte* piece, Bytes bytes) {
    auto& seen = *static_cast<Call*>(context);
    seen = Call{seen.count + 1, offset, bytes, piece};
  };
  receive.deliver(Bytes{16}, data.data(), Bytes{3});
  receive.deliver(Bytes{0}, nullptr, Bytes{0});
  EXPECT_EQ(call.count, 1);
  EXPECT_EQ(call.offset, Bytes{16});
  EXPECT_EQ(call.bytes, Bytes{3});
  EXPECT_EQ(call.data, data.data());
}

// Goal: starting a transfer again leaves nothing of the last time.
// Method: fail one, start it.
TEST(Transfer, StartResets) {
  Send send;
  send.moved = Bytes{5};
  send.handle = 7;
  send.fail(ErrorKind::kRankFailed);
  EXPECT_EQ(send.state, TransferState::kFailed);
  EXPECT_EQ(send.error, ErrorKind::kRankFailed);
  send.start();
  EXPECT_EQ(send.state, TransferState::kActive);
  EXPECT_EQ(send.moved, Bytes{0});
  EXPECT_EQ(send.handle, 0u);
}

}  // namespace
}  // namespace farandole
