// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/session.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "unit/bootstrap/ranks.hpp"

namespace farandole::test {
namespace {

// Goal: all ranks meet, with odd counts too, and agree on who is who.
// Method: ranks as threads; compare every table with what each rank said about itself.
TEST(Session, AllRanksGetTheSameTable) {
  for (const int size : {1, 2, 3, 8, 33}) {
    Ranks ranks(size);
    ASSERT_EQ(ranks.errors(), "") << "size " << size;
    for (int rank = 0; rank < size; ++rank) {
      const Members& members = ranks[rank].members();
      ASSERT_EQ(members.size(), static_cast<std::size_t>(size));
      for (int other = 0; other < size; ++other) {
        const Member& member = members[static_cast<std::size_t>(other)];
        EXPECT_EQ(member.rank, Rank{other});
        EXPECT_EQ(member.local_rank, other);
        EXPECT_EQ(member.pid, getpid());
        EXPECT_EQ(member.host_id, members[0].host_id);
        EXPECT_EQ(member.cards.at("card"), "of " + std::to_string(other));
      }
    }
  }
}

// Goal: when all leave at once, everybody hears of everybody, cleanly, with the state.
// Method: leave on all ranks together and look at what each heard.
TEST(Session, AllLeaveTogether) {
  for (const int size : {1, 2, 7, 33}) {
    Ranks ranks(size);
    ASSERT_EQ(ranks.errors(), "");
    ranks.leave_all("done");
    for (int rank = 0; rank < size; ++rank) {
      for (const Departure& departure : ranks.ear(rank).departures()) {
        EXPECT_TRUE(departure.clean) << departure.reason;
        EXPECT_EQ(departure.state, "done");
        EXPECT_NE(departure.rank, Rank{rank});
      }
      EXPECT_EQ(ranks.ear(rank).departures().size(), static_cast<std::size_t>(size - 1));
    }
  }
}

// Goal: any two ranks get a stream of bytes that both ends call by the same name.
// Method: connect all pairs under two names, in both orders, and exchange a byte each way.
TEST(Session, OpensDataSockets) {
  constexpr int kSize = 4;
  Ranks ranks(kSize);
  ASSERT_EQ(ranks.errors(), "");
  on_threads(kSize, [&](int rank) {
    for (int other = 0; other < kSize; ++other) {
      for (const char* purpose : {"tcp.0", "tcp.1"}) {
        if (other == rank) continue;
        const Deadline deadline = Deadline::after(kPatience);
        auto fd = rank < other ? ranks[rank].open(Rank{other}, purpose, deadline)
                               : ranks[rank].accept(Rank{other}, purpose, deadline);
        ASSERT_TRUE(fd) << fd.error().message;
        const char sent = static_cast<char>(16 * rank + other + purpose[4] - '0');
        const char expected = static_cast<char>(16 * other + rank + purpose[4] - '0');
        ASSERT_EQ(send(*fd, &sent, 1, MSG_NOSIGNAL), 1);
        char got = 0;
        pollfd readable{*fd, POLLIN, 0};
        ASSERT_EQ(poll(&readable, 1, deadline.remaining_ms(60'000)), 1);
        ASSERT_EQ(recv(*fd, &got, 1, MSG_DONTWAIT), 1);
        EXPECT_EQ(got, expected);
        close(*fd);
      }
    }
  });
}

// Goal: a flooded message reaches every other rank once, in the sender's order.
// Method: every rank floods several; count them everywhere.
TEST(Session, FloodReachesEveryoneOnce) {
  constexpr int kSize = 9;
  constexpr int kMessages = 20;
  Ranks ranks(kSize);
  ASSERT_EQ(ranks.errors(), "");
  on_threads(kSize, [&](int rank) {
    for (int i = 0; i < kMessages; ++i) ranks[rank].flood(std::to_string(i));
  });
  for (int rank = 0; rank < kSize; ++rank) {
    ASSERT_TRUE(ranks.ear(rank).wait_for(
        [](const Ear& ear) { return ear.noticed.size() >= kMessages * (kSize - 1); }));
  }
  ranks.leave_all();
  for (int rank = 0; rank < kSize; ++rank) {
    std::map<int, int> next;
    for (const auto& [from, message] : ranks.ear(rank).notices()) {
      EXPECT_EQ(message, std::to_string(next[from]++));
    }
    EXPECT_FALSE(next.contains(rank));
    EXPECT_EQ(ranks.ear(rank).notices().size(), std::size_t{kMessages * (kSize - 1)});
  }
}

}  // namespace
}  // namespace farandole::test
