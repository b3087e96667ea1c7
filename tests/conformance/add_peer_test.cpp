// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "conformance/harness.hpp"

namespace farandole::conformance {
namespace {

void add(Node& node, int peer) {
  const auto added =
      node.transport().add_peer({.rank = Rank{peer}}, Deadline::after(std::chrono::seconds(30)));
  EXPECT_TRUE(added) << (added ? "" : added.error().message);
}

/// A message each way, small and large.
void exchange(Node& node, int peer, std::uint32_t sequence) {
  for (const std::size_t bytes : {100, 300'000}) {
    Buffer out(node, Buffer::Kind::kOwned, bytes), in(node, Buffer::Kind::kForeign, bytes);
    fill(out.span(), seed_of(node.rank(), peer, sequence));
    const Tag tag = tag_of(sequence, static_cast<std::uint32_t>(bytes));
    Receive receive = receive_of(peer, tag, in.span());
    Send send = send_of(peer, tag, out.span());
    node.transport().post(receive);
    node.transport().post(send);
    node.wait(receive);
    node.wait(send);
    EXPECT_EQ(receive.state, TransferState::kDone);
    EXPECT_EQ(send.state, TransferState::kDone);
    EXPECT_EQ(first_wrong(in.span(), seed_of(peer, node.rank(), sequence)), -1);
  }
}

// Goal: a rank is added to two that talk already, and that go on talking meanwhile; adding a peer
// again changes nothing.
// Method: a second thread of each of the two adds it, while the first exchanges messages.
TEST_P(Conformance, APeerIsAddedWhileOthersTalk) {
  run_unconnected(GetParam(), 3, [](Node& node) {
    if (node.rank() == 2) {
      add(node, 0);
      add(node, 1);
    } else {
      const int other = 1 - node.rank();
      add(node, other);
      exchange(node, other, 1);
      std::thread adds([&] { add(node, 2); });
      for (std::uint32_t sequence = 2; sequence < 6; ++sequence) exchange(node, other, sequence);
      adds.join();
      add(node, other);
    }
    node.barrier();
    for (int peer = 0; peer < 3; ++peer) {
      if (peer != node.rank()) exchange(node, peer, 10);
    }
  });
}

}  // namespace
}  // namespace farandole::conformance
