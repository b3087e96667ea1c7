// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/batch.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "unit/engine/posted.hpp"

namespace farandole {
namespace {

// Goal: all messages that one rank may have in flight have different ids, so that the end of one
// ends no other; the two ends of a message compute the same by construction.
// Method: exhaust ranks, peers and directions of groups up to 17 for messages near the start and
// near the point where numbers come again.
TEST(MessageId, TellsAllMessagesOfOneRankApart) {
  for (int size = 2; size <= 17; ++size) {
    Group group;
    group.communicator = 5;
    group.world_ranks.resize(static_cast<std::size_t>(size));
    const std::uint32_t window = ~std::uint32_t{0} / (2 * static_cast<std::uint32_t>(size));
    for (int self = 0; self < size; ++self) {
      std::set<std::uint32_t> seen;
      std::size_t count = 0;
      for (int peer = 0; peer < size; ++peer) {
        if (peer == self) continue;
        for (const std::uint32_t number : {0u, 1u, 2u, window - 2, window - 1}) {
          for (const auto& [from, to] : {std::pair(self, peer), std::pair(peer, self)}) {
            const OperationId id = message_id(group, Rank{from}, Rank{to}, number);
            EXPECT_EQ(id.communicator, 5 | kPointToPoint);
            seen.insert(id.sequence);
            ++count;
          }
        }
      }
      EXPECT_EQ(seen.size(), count) << "rank " << self << " of " << size;
    }
  }
}

// Goal: the rank that a transport has lost is named, whichever message it has.
// Method: fail one of three messages, each of another rank.
TEST(BatchOperation, NamesThePeerThatIsLost) {
  for (const int lost : {1, 2, 3}) {
    Posted transport;
    auto group = std::make_shared<Group>();
    group->self = Rank{0};
    group->world_ranks = {Rank{0}, Rank{1}, Rank{2}, Rank{3}};
    group->transports.assign(4, &transport);
    std::byte target[3];
    BatchSpec spec;
    spec.terms.group = group;
    for (const int peer : {1, 2, 3}) {
      spec.messages.push_back({.peer = Rank{peer}, .data = target + peer - 1, .bytes = Bytes{1}});
    }
    BatchOperation batch(std::move(spec));
    batch.step();
    ASSERT_EQ(transport.transfers.size(), 3U);
    EXPECT_EQ(batch.lost_peer(), std::nullopt);
    transport.lose(Rank{lost});
    EXPECT_EQ(batch.lost_peer(), Rank{lost});
  }
}

}  // namespace
}  // namespace farandole
