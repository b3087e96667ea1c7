// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/matcher.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <deque>

namespace farandole {
namespace {

using Fate = Matcher::Fate;

Tag tag(std::uint32_t sequence, std::uint32_t lane = 0) {
  return Tag{{1, sequence}, lane};
}

Envelope message(int peer, Tag t, std::size_t bytes = 8) {
  return Envelope{Rank{peer}, t, Signature{.count = bytes}, Bytes{bytes}};
}

Receive receive(int peer, Tag t, std::size_t bytes = 8) {
  Receive result;
  result.peer = Rank{peer};
  result.tag = t;
  result.signature.count = bytes;
  result.bytes = Bytes{bytes};
  return result;
}

int length(const Arrival* list) {
  int n = 0;
  for (; list != nullptr; list = list->next) ++n;
  return n;
}

// Goal: receives of one tag are taken in the order posted, by messages of that peer and tag only.
// Method: post for two peers and two tags, then let messages arrive in another order.
TEST(Matcher, PostedReceivesMatchInOrder) {
  Matcher matcher(3, {});
  Receive a = receive(1, tag(1)), b = receive(1, tag(1)), c = receive(1, tag(1, 1)),
          d = receive(2, tag(1));
  for (Receive* r : {&a, &b, &c, &d}) {
    EXPECT_EQ(matcher.post(*r), nullptr);
    EXPECT_EQ(r->state, TransferState::kActive);
  }
  EXPECT_EQ(matcher.arrive(message(2, tag(1))).receive, &d);
  EXPECT_EQ(matcher.arrive(message(1, tag(1, 1))).receive, &c);
  EXPECT_EQ(matcher.arrive(message(1, tag(1))).receive, &a);
  EXPECT_EQ(matcher.arrive(message(1, tag(1))).receive, &b);
  EXPECT_EQ(matcher.arrive(message(1, tag(1))).fate, Fate::kEarly);
  EXPECT_EQ(matcher.arrive(message(2, tag(1, 1))).fate, Fate::kEarly);
}

// Goal: early messages keep their payload and are taken in the order of arrival, by receives of
// their peer and tag only; the pool grows when it is exhausted, and payloads may exceed a block.
// Method: three times as many messages as a small pool holds, every fifth one large.
TEST(Matcher, EarlyMessagesMatchInOrder) {
  const auto size_of_message = [](int i) { return std::size_t{i % 5 == 0 ? 1000u : 64u}; };
  Matcher matcher(2, {.arrival_count = 16, .block = Bytes{64}});
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 48; ++i) {
      const Envelope envelope =
          message(1, tag(static_cast<std::uint32_t>(i % 2)), size_of_message(i));
      ASSERT_EQ(matcher.arrive(envelope).fate, Fate::kEarly);
      Arrival& arrival = matcher.set_aside(envelope, envelope.bytes);
      arrival.handle = static_cast<std::uint64_t>(i);
      std::memset(arrival.payload, i, envelope.bytes.value());
    }
    for (const int parity : {1, 0}) {
      for (int i = parity; i < 48; i += 2) {
        Receive r = receive(1, tag(static_cast<std::uint32_t>(parity)), size_of_message(i));
        Arrival* arrival = matcher.post(r);
        ASSERT_NE(arrival, nullptr);
        EXPECT_EQ(r.state, TransferState::kActive);
        EXPECT_EQ(arrival->handle, static_cast<std::uint64_t>(i));
        const std::byte last = arrival->payload[size_of_message(i) - 1];
        EXPECT_EQ(last, static_cast<std::byte>(i));
        matcher.release(*arrival);
      }
    }
  }
}

// Goal: a mismatch of length or signature fails the receive with what was seen, whichever of the
// two came first, and takes the message with it.
// Method: both kinds of difference in both orders.
TEST(Matcher, MismatchFailsTheReceive) {
  for (const bool early : {true, false}) {
    for (const bool bytes_differ : {true, false}) {
      Matcher matcher(2, {});
      Envelope envelope = message(1, tag(1), 8);
      if (bytes_differ) {
        envelope.bytes = Bytes{9};
      } else {
        envelope.signature.root = 3;
      }
      Receive r = receive(1, tag(1), 8);
      if (early) {
        EXPECT_EQ(matcher.arrive(envelope).fate, Fate::kEarly);
        Arrival& arrival = matcher.set_aside(envelope, Bytes{0});
        EXPECT_EQ(matcher.post(r), &arrival);
        matcher.release(arrival);
      } else {
        EXPECT_EQ(matcher.post(r), nullptr);
        EXPECT_EQ(matcher.arrive(envelope).fate, Fate::kDiscarded);
      }
      EXPECT_EQ(r.state, TransferState::kFailed);
      EXPECT_EQ(r.error, ErrorKind::kMismatch);
      EXPECT_EQ(r.seen, envelope.signature);
      EXPECT_EQ(r.seen_bytes, envelope.bytes);
      Receive again = receive(1, tag(1));
      EXPECT_EQ(matcher.post(again), nullptr);
      EXPECT_EQ(matcher.arrive(message(1, tag(1))).receive, &again);
    }
  }
}

// Goal: cancel() ends exactly one operation: its receives, its early messages, late messages and
// late receives, of all peers and lanes.
// Method: two operations side by side.
TEST(Matcher, CancelEndsOneOperation) {
  Matcher matcher(3, {});
  Receive a = receive(1, tag(1)), b = receive(2, tag(1, 4)), other = receive(1, tag(2));
  for (Receive* r : {&a, &b, &other}) (void)matcher.post(*r);
  for (const std::uint32_t sequence : {1u, 2u}) {
    const Envelope envelope = message(0, tag(sequence));
    matcher.set_aside(envelope, Bytes{0});
  }
  Arrival* dropped = matcher.cancel({1, 1});
  ASSERT_EQ(length(dropped), 1);
  EXPECT_EQ(dropped->envelope.tag, tag(1));
  matcher.release(*dropped);
  EXPECT_EQ(a.state, TransferState::kFailed);
  EXPECT_EQ(b.state, TransferState::kFailed);
  EXPECT_EQ(other.state, TransferState::kActive);
  EXPECT_EQ(matcher.arrive(message(1, tag(1))).fate, Fate::kDiscarded);
  EXPECT_EQ(matcher.arrive(message(1, tag(2))).receive, &other);
  Receive late = receive(1, tag(1));
  EXPECT_EQ(matcher.post(late), nullptr);
  EXPECT_EQ(late.state, TransferState::kFailed);
  Receive second = receive(0, tag(2));
  EXPECT_NE(matcher.post(second), nullptr);
  EXPECT_FALSE(matcher.cancelled({2, 1})) << "another communicator";
}

// Goal: the last 256 cancelled operations are known, and one cancelled twice counts once.
// Method: cancel one twice, then 255 others, then one more.
TEST(Matcher, RemembersTheLast256) {
  Matcher matcher(1, {});
  (void)matcher.cancel({1, 0});
  for (std::uint32_t i = 1; i < 256; ++i) {
    (void)matcher.cancel({1, 0});
    (void)matcher.cancel({1, i});
  }
  for (std::uint32_t i = 0; i < 256; ++i) EXPECT_TRUE(matcher.cancelled({1, i})) << i;
  (void)matcher.cancel({1, 256});
  EXPECT_FALSE(matcher.cancelled({1, 0}));
  EXPECT_TRUE(matcher.cancelled({1, 1}));
  EXPECT_TRUE(matcher.cancelled({1, 256}));
}

// Goal: a failed peer fails its receives, now and later, drops its messages, and no one else's.
// Method: two peers with the same tags.
TEST(Matcher, PeerFailedEndsThatPeer) {
  Matcher matcher(2, {});
  Receive gone = receive(0, tag(1)), stays = receive(1, tag(1));
  (void)matcher.post(gone);
  (void)matcher.post(stays);
  for (const int peer : {0, 1}) matcher.set_aside(message(peer, tag(2)), Bytes{8});
  Arrival* dropped = matcher.peer_failed(Rank{0});
  ASSERT_EQ(length(dropped), 1);
  EXPECT_EQ(dropped->envelope.peer, Rank{0});
  EXPECT_TRUE(matcher.failed(Rank{0}));
  EXPECT_EQ(gone.state, TransferState::kFailed);
  EXPECT_EQ(gone.error, ErrorKind::kRankFailed);
  EXPECT_EQ(stays.state, TransferState::kActive);
  Receive late = receive(0, tag(2));
  EXPECT_EQ(matcher.post(late), nullptr);
  EXPECT_EQ(late.error, ErrorKind::kRankFailed);
  EXPECT_EQ(matcher.arrive(message(0, tag(1))).fate, Fate::kDiscarded);
  EXPECT_EQ(matcher.arrive(message(1, tag(1))).receive, &stays);
}

}  // namespace
}  // namespace farandole
