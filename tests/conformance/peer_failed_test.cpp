// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <deque>
#include <latch>

#include "conformance/harness.hpp"

namespace farandole::conformance {
namespace {

constexpr int kGone = 2;

void expect_rank_failed(Node& node, Transfer& transfer) {
  node.until("a transfer with a failed peer to end",
             [&] { return transfer.state != TransferState::kActive; });
  EXPECT_EQ(transfer.state, TransferState::kFailed);
  EXPECT_EQ(transfer.error, ErrorKind::kRankFailed);
}

void exchange(Node& node, int other, std::uint32_t sequence) {
  for (const std::size_t bytes : {std::size_t{50}, std::size_t{900'000}}) {
    Buffer out(node, Buffer::Kind::kForeign, bytes), in(node, Buffer::Kind::kForeign, bytes);
    fill(out.span(), seed_of(node.rank(), other, sequence));
    Send send = send_of(other, tag_of(sequence), out.span());
    Receive receive = receive_of(other, tag_of(sequence), in.span());
    node.transport().post(send);
    node.transport().post(receive);
    node.wait(receive);
    node.wait(send);
    EXPECT_EQ(receive.state, TransferState::kDone);
    EXPECT_EQ(first_wrong(in.span(), seed_of(other, node.rank(), sequence)), -1);
  }
}

/// Ranks 0 and 1 have transfers with rank 2, lose it, and go on with each other. The buffers stay
/// for the lost one to read if it can.
void lose_peer(Node& node, std::deque<Buffer>& buffers) {
  const int other = 1 - node.rank();
  std::deque<Send> sends;
  std::deque<Receive> receives;
  for (const std::size_t bytes : {std::size_t{10}, std::size_t{200'000}}) {
    for (const auto kind : {Buffer::Kind::kOwned, Buffer::Kind::kForeign}) {
      buffers.emplace_back(node, kind, bytes);
      receives.push_back(receive_of(kGone, tag_of(1), buffers.back().span()));
      node.transport().post(receives.back());
    }
  }
  // More than any transport takes without a receiver.
  for (int i = 0; i < 200; ++i) {
    buffers.emplace_back(node, i % 2 == 0 ? Buffer::Kind::kOwned : Buffer::Kind::kForeign, 200'000);
    sends.push_back(send_of(kGone, tag_of(1), buffers.back().span()));
    node.transport().post(sends.back());
  }
  node.settle();
  node.transport().peer_failed(Rank{kGone});
  for (Receive& receive : receives) expect_rank_failed(node, receive);
  for (Send& send : sends) {
    node.wait(send);
    EXPECT_TRUE(send.state == TransferState::kDone || send.error == ErrorKind::kRankFailed);
  }
  EXPECT_EQ(sends.back().state, TransferState::kFailed);
  Send late_send = send_of(kGone, tag_of(2), buffers[0].span());
  Receive late_receive = receive_of(kGone, tag_of(2), buffers[0].span());
  node.transport().post(late_send);
  node.transport().post(late_receive);
  expect_rank_failed(node, late_send);
  expect_rank_failed(node, late_receive);
  exchange(node, other, 5);
}

// Goal: a failed peer fails its own transfers, now and later, and no others. Should it be alive
// after all and go on, it harms nobody.
// Method: three ranks; two declare the third one failed while it sleeps. Then it wakes up and
// receives what it was sent, while the two exchange more.
TEST_P(Conformance, PeerFailedEndsItsTransfersOnly) {
  std::latch lost(2);
  run(GetParam(), 3, [&](Node& node) {
    std::deque<Buffer> buffers;
    if (node.rank() != kGone) {
      lose_peer(node, buffers);
      lost.count_down();
      node.barrier();
      for (std::uint32_t i = 0; i < 20; ++i) exchange(node, 1 - node.rank(), 100 + i);
      node.barrier();
      return;
    }
    lost.wait();  // a barrier would take what arrives
    node.barrier();
    Buffer buffer(node, Buffer::Kind::kForeign, 200'000);
    std::deque<Receive> receives;
    for (int i = 0; i < 100; ++i) {
      receives.push_back(receive_of(i % 2, tag_of(1), buffer.span()));
      node.transport().post(receives.back());
    }
    node.settle();
    node.cancel({1, 1});
    node.barrier();
  });
}

}  // namespace
}  // namespace farandole::conformance
