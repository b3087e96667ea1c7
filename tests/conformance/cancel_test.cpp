// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <malloc.h>

#include <algorithm>
#include <deque>
#include <vector>

#include "conformance/harness.hpp"
#include "unit/base/full_run.hpp"

namespace farandole::conformance {
namespace {

constexpr std::size_t kSizes[] = {100, 20'000, 3'000'000};
constexpr Buffer::Kind kKinds[] = {Buffer::Kind::kOwned, Buffer::Kind::kForeign};

/// A set of messages between two ranks, of every size and memory, all of one operation.
struct Traffic {
  Traffic(Node& node, std::uint32_t sequence) : node_(node), sequence_(sequence) {
    for (const std::size_t bytes : kSizes) {
      for (const auto kind : kKinds) {
        out.emplace_back(node, kind, bytes);
        in.emplace_back(node, kind, bytes);
        fill(out.back().span(), seed_of(node.rank(), 1 - node.rank(), out.size() + sequence));
      }
    }
  }
  void post_sends() {
    for (std::uint32_t i = 0; i < out.size(); ++i) {
      sends.push_back(send_of(1 - node_.rank(), tag_of(sequence_, i), out[i].span()));
      node_.transport().post(sends.back());
    }
  }
  void post_receives() {
    for (std::uint32_t i = 0; i < in.size(); ++i) {
      receives.push_back(receive_of(1 - node_.rank(), tag_of(sequence_, i), in[i].span()));
      node_.transport().post(receives.back());
    }
  }
  void wait_for_sends() {
    for (Send& send : sends) node_.wait(send);
  }
  bool ended() const {
    const auto ended = [](const Transfer& t) { return t.state != TransferState::kActive; };
    return std::ranges::all_of(sends, ended) && std::ranges::all_of(receives, ended);
  }
  void expect_received() {
    for (std::size_t i = 0; i < receives.size(); ++i) {
      node_.wait(receives[i]);
      EXPECT_EQ(receives[i].state, TransferState::kDone);
      EXPECT_EQ(
          first_wrong(in[i].span(), seed_of(1 - node_.rank(), node_.rank(), i + 1 + sequence_)),
          -1);
    }
  }
  std::deque<Buffer> out, in;
  std::deque<Send> sends;
  std::deque<Receive> receives;

 private:
  Node& node_;
  std::uint32_t sequence_;
};

/// The transport still works: an exchange in both directions.
void exchange(Node& node, std::uint32_t sequence) {
  Traffic traffic(node, sequence);
  traffic.post_receives();
  traffic.post_sends();
  traffic.expect_received();
  traffic.wait_for_sends();
  EXPECT_TRUE(std::ranges::all_of(
      traffic.sends, [](const Send& send) { return send.state == TransferState::kDone; }));
}

// Goal: messages of a cancelled operation that come late are discarded, their sends succeed.
// Method: rank 1 cancels with receives posted or not, then rank 0 sends.
TEST_P(Conformance, LateMessagesOfACancelledOperationAreDiscarded) {
  run(GetParam(), 2, [](Node& node) {
    for (const std::uint32_t sequence : {10u, 20u}) {
      Traffic traffic(node, sequence);
      if (node.rank() == 1) {
        if (sequence == 10) traffic.post_receives();
        node.cancel({1, sequence});
        for (const Receive& receive : traffic.receives) {
          EXPECT_EQ(receive.state, TransferState::kFailed);
        }
      }
      node.barrier();
      if (node.rank() == 0) {
        traffic.post_sends();
        traffic.wait_for_sends();
        for (const Send& send : traffic.sends) EXPECT_EQ(send.state, TransferState::kDone);
      }
      exchange(node, sequence + 1);
    }
  });
}

// Goal: messages that were set aside go when their operation is cancelled.
// Method: rank 0 sends, rank 1 lets them arrive, cancels, and the sends end.
TEST_P(Conformance, EarlyMessagesOfACancelledOperationAreDiscarded) {
  run(GetParam(), 2, [](Node& node) {
    Traffic traffic(node, 30);
    if (node.rank() == 0) traffic.post_sends();
    node.barrier();
    node.settle();
    if (node.rank() == 1) node.cancel({1, 30});
    traffic.wait_for_sends();
    exchange(node, 31);
  });
}

// Goal: they leave no memory behind. Method: many of them, several times; how much more malloc()
// has given out after each time. Whatever else the process allocates it does once.
TEST_P(Conformance, EarlyMessagesOfCancelledOperationsAreFreed) {
  run(GetParam(), 2, [](Node& node) {
    constexpr std::size_t kBytes = 4000, kMessages = 256, kTimes = 4;
    Buffer buffer(node, Buffer::Kind::kForeign, kBytes);
    std::vector<std::size_t> given_out;
    for (std::uint32_t time = 0; time <= kTimes; ++time) {
      std::deque<Send> sends;
      const std::uint32_t first = time * kMessages;
      for (std::uint32_t i = first; node.rank() == 0 && i < first + kMessages; ++i) {
        sends.push_back(send_of(1, tag_of(i), buffer.span()));
        node.transport().post(sends.back());
      }
      node.barrier();
      node.settle();
      for (std::uint32_t i = first; i < first + kMessages; ++i) node.cancel({1, i});
      for (Send& send : sends) node.wait(send);
      node.barrier();
      const auto info = ::mallinfo2();
      given_out.push_back(info.uordblks + info.hblkhd);
    }
    std::size_t grows = 0;
    for (std::size_t i = 1; i <= kTimes; ++i) grows += given_out[i] > given_out[i - 1] + 100'000;
    EXPECT_LT(grows, kTimes) << "each time";
    exchange(node, (kTimes + 1) * kMessages);
  });
}

/// Cancels an exchange after `steps` calls of progress(), on the ranks in `cancellers`, then on
/// the other one; nothing may touch the targets of a rank after its cancel().
void cut_off(Node& node, std::uint32_t sequence, int steps, const std::vector<int>& cancellers) {
  Traffic traffic(node, sequence);
  traffic.post_receives();
  traffic.post_sends();
  for (int i = 0; i < steps; ++i) (void)node.transport().progress();
  const auto cancel = [&] {
    node.cancel({1, sequence});
    EXPECT_TRUE(traffic.ended());
    for (Buffer& buffer : traffic.in) fill_all(buffer.span(), std::byte{0x5a});
  };
  const bool first = std::ranges::count(cancellers, node.rank()) > 0;
  if (first) cancel();
  node.barrier();
  node.settle();
  node.barrier();
  if (!first) cancel();
  node.barrier();
  node.settle();
  for (Buffer& buffer : traffic.in) {
    EXPECT_TRUE(is_all(buffer.span(), std::byte{0x5a}))
        << "a target was written after cancel() had returned true";
  }
  exchange(node, sequence + 1);
}

// Goal: cancel() works at any moment, on both sides at once or on one before the other, leaves
// no transfer active, touches no memory afterwards, and the transport goes on.
// Method: an exchange cut off after a growing number of steps.
TEST_P(Conformance, CancelInFlight) {
  const std::vector<int> moments =
      full_run() ? std::vector<int>{0, 1, 2, 3, 5, 8, 13, 21} : std::vector<int>{0, 1, 3, 8, 21};
  for (const std::vector<int>& cancellers :
       {std::vector<int>{0, 1}, std::vector<int>{0}, std::vector<int>{1}}) {
    run(GetParam(), 2, [&](Node& node) {
      std::uint32_t sequence = 100;
      for (const int steps : moments) {
        cut_off(node, sequence += 2, steps, cancellers);
      }
    });
  }
}

// Goal: what is posted for an operation after its cancel() fails at once.
// Method: post both kinds and look, without progress().
TEST_P(Conformance, PostAfterCancelFails) {
  run(GetParam(), 2, [](Node& node) {
    node.cancel({1, 50});
    Buffer buffer(node, Buffer::Kind::kForeign, 100);
    Send send = send_of(1 - node.rank(), tag_of(50), buffer.span());
    Receive receive = receive_of(1 - node.rank(), tag_of(50), buffer.span());
    node.transport().post(send);
    node.transport().post(receive);
    EXPECT_EQ(send.state, TransferState::kFailed);
    EXPECT_EQ(receive.state, TransferState::kFailed);
    exchange(node, 51);
  });
}

// Goal: the 256 latest cancelled operations are remembered, not fewer.
// Method: cancel 256, then send a message of each; none is delivered, the transport works.
TEST_P(Conformance, RemembersCancelledOperations) {
  run(GetParam(), 2, [](Node& node) {
    constexpr std::uint32_t kCount = 256;
    Buffer buffer(node, Buffer::Kind::kForeign, 100);
    if (node.rank() == 1) {
      for (std::uint32_t i = 0; i < kCount; ++i) node.cancel({1, 1000 + i});
    }
    node.barrier();
    if (node.rank() == 0) {
      for (std::uint32_t i = 0; i < kCount; ++i) {
        Send send = send_of(1, tag_of(1000 + i), buffer.span());
        node.transport().post(send);
        node.wait(send);
        EXPECT_EQ(send.state, TransferState::kDone);
      }
    }
    exchange(node, 60);
  });
}

}  // namespace
}  // namespace farandole::conformance
