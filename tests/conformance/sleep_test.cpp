// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <poll.h>

#include <algorithm>
#include <deque>

#include "conformance/harness.hpp"

namespace farandole::conformance {
namespace {

/// Sleeps as the engine does: arm, look once more, sleep on the bell and the transport.
template <class Condition>
void sleep_until(Node& node, Condition condition) {
  pollfd wakers[2] = {{node.doorbell().fd(), POLLIN, 0}, {node.transport().wait_fd(), POLLIN, 0}};
  while (!condition()) {
    if (node.transport().progress()) continue;
    node.doorbell().arm();
    if (!node.transport().progress() && !condition()) {
      ASSERT_GT(::poll(wakers, 2, 30'000), 0) << "rank " << node.rank() << " missed its wake-up";
    }
    node.doorbell().disarm();
    node.doorbell().drain();
  }
}

template <class Transfers>
void sleep_for(Node& node, Transfers& transfers) {
  sleep_until(node, [&] {
    return std::ranges::none_of(
        transfers, [](const Transfer& t) { return t.state == TransferState::kActive; });
  });
}

// Goal: no wake-up is lost: whoever waits for a peer may sleep.
// Method: ping-pong in which both ranks sleep whenever nothing moves, over every way in which a
// message travels.
TEST_P(Conformance, PeersWakeASleeper) {
  run(GetParam(), 2, [](Node& node) {
    const int other = 1 - node.rank();
    for (const std::size_t bytes : {std::size_t{8}, std::size_t{4000}, std::size_t{1'500'000}}) {
      for (const auto kind : {Buffer::Kind::kOwned, Buffer::Kind::kForeign}) {
        Buffer out(node, kind, bytes), in(node, kind, bytes);
        const int rounds = bytes < 10'000 ? 300 : 10;
        for (int i = 0; i < rounds; ++i) {
          Send send[1] = {send_of(other, tag_of(1), out.span())};
          Receive receive[1] = {receive_of(other, tag_of(1), in.span())};
          if (node.rank() == 0) node.transport().post(send[0]);
          node.transport().post(receive[0]);
          sleep_for(node, receive);
          if (node.rank() == 1) node.transport().post(send[0]);
          sleep_for(node, send);
        }
      }
    }
  });
}

// Goal: a sender that waits for room is woken, too.
// Method: far more messages than fit anywhere, to a peer that receives late.
TEST_P(Conformance, RoomWakesASleepingSender) {
  run(GetParam(), 2, [](Node& node) {
    Buffer buffer(node, Buffer::Kind::kForeign, 4000);
    std::deque<Send> sends;
    std::deque<Receive> receives;
    for (int i = 0; i < 3000; ++i) {
      if (node.rank() == 0) {
        node.transport().post(sends.emplace_back(send_of(1, tag_of(1), buffer.span())));
      } else {
        receives.push_back(receive_of(0, tag_of(1), buffer.span()));
      }
    }
    node.barrier();
    for (Receive& receive : receives) {
      node.transport().post(receive);
      sleep_until(node, [&] { return receive.state == TransferState::kDone; });
    }
    sleep_for(node, sends);
  });
}

}  // namespace
}  // namespace farandole::conformance
