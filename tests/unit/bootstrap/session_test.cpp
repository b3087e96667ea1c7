// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/session.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>

#include "bootstrap/latecomers.hpp"
#include "bootstrap/membership_log.hpp"
#include "unit/bootstrap/children.hpp"
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
        EXPECT_EQ(member.record.at("entry"), "of " + std::to_string(other));
      }
    }
  }
}

// Goal: when all leave at once, right after the start, nobody is taken for dead.
// Method: leave on all ranks together; every departure heard is clean and carries the state.
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
    }
  }
}

// Goal: a rank that is done at once fails no slower one: nobody gets past begin() before all do.
// Method: of each size one rank begins only once another, which leaves right after, has been at it.
TEST(Session, BeginWaitsForTheSlowest) {
  for (const int size : {1, 2, 3, 8, 33}) {
    Ranks ranks(size);
    ASSERT_EQ(ranks.errors(), "");
    std::atomic<int> begun = 0;
    on_threads(size, [&](int rank) {
      if (rank == size - 1) {
        EXPECT_FALSE(ranks[rank].start_failure(Deadline::after(100ms)));
        EXPECT_EQ(begun, 0);
      }
      const auto result = ranks[rank].begin(Deadline::after(kPatience));
      EXPECT_TRUE(result) << result.error().message;
      ++begun;
      ranks[rank].leave("done");
    });
  }
}

// Goal: a rank that cannot begin ends the start of all, whatever they wait for, and they say why.
// Method: rank 2 of four gives up; 0 is ready, 1 waits for a socket from 3 and 3 for one to 1.
TEST(Session, WhoGivesUpIsNamedWithTheReason) {
  Ranks ranks(4);
  ASSERT_EQ(ranks.errors(), "");
  on_threads(4, [&](int rank) {
    const Deadline deadline = Deadline::after(kPatience);
    if (rank == 2) return ranks[2].give_up(Error{ErrorKind::kInternal, "no memory"});
    const Error error = rank == 0   ? ranks[0].begin(deadline).error()
                        : rank == 1 ? ranks[1].accept(Rank{3}, "never", deadline).error()
                                    : ranks[3].accept(Rank{1}, "never", deadline).error();
    EXPECT_EQ(error.kind, ErrorKind::kRankFailed);
    EXPECT_NE(error.message.find("gave up while the job started: no memory."), std::string::npos)
        << error.message;
    ASSERT_TRUE(error.culprit);
    EXPECT_EQ(error.culprit->rank, 2);
  });
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

// Goal: open() and accept() end in time, with an error that names the peer.
// Method: nobody calls; a bad rank; one's own rank; a purpose too long; after leaving.
TEST(Session, WaitsForDataSocketsEnd) {
  Ranks ranks(3);
  ASSERT_EQ(ranks.errors(), "");
  const Deadline soon = Deadline::after(50ms);
  const auto late = ranks[0].accept(Rank{1}, "nobody calls", soon);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().kind, ErrorKind::kTimedOut);
  EXPECT_NE(late.error().message.find("rank 1 (host"), std::string::npos);
  for (const int peer : {-1, 0, 3}) {
    EXPECT_EQ(ranks[0].open(Rank{peer}, "x", soon).error().kind, ErrorKind::kInvalidArgument);
    EXPECT_EQ(ranks[0].accept(Rank{peer}, "x", soon).error().kind, ErrorKind::kInvalidArgument);
  }
  EXPECT_EQ(ranks[0].open(Rank{1}, std::string(2000, 'x'), soon).error().kind,
            ErrorKind::kInvalidArgument);
  ranks[2].leave("");
  EXPECT_EQ(ranks[2].open(Rank{0}, "x", Deadline::never()).error().kind,
            ErrorKind::kInvalidArgument);
}

// Goal: once all have begun, a departure ends waits for that rank, and no others.
// Method: wait without a deadline for a rank that leaves; a socket that it opened before stays
// good; a wait for another rank succeeds afterwards.
TEST(Session, ADepartureEndsWaits) {
  Ranks ranks(3);
  ASSERT_EQ(ranks.errors(), "");
  on_threads(3, [&](int rank) { ASSERT_TRUE(ranks[rank].begin(Deadline::after(kPatience))); });
  auto before = ranks[2].open(Rank{0}, "before", Deadline::after(kPatience));
  ASSERT_TRUE(before);
  on_threads(4, [&](int part) {
    if (part == 0) {
      const auto lost = ranks[0].accept(Rank{2}, "never", Deadline::never());
      ASSERT_FALSE(lost);
      EXPECT_EQ(lost.error().kind, ErrorKind::kRankFailed);
      ASSERT_TRUE(lost.error().culprit);
      EXPECT_EQ(lost.error().culprit->rank, 2);
      EXPECT_EQ(lost.error().culprit->pid, getpid());
      EXPECT_NE(lost.error().message.find("shut down"), std::string::npos);
    } else if (part == 1) {
      ranks[2].leave("");
    } else if (part == 2) {
      auto fd = ranks[0].accept(Rank{1}, "later", Deadline::after(kPatience));
      ASSERT_TRUE(fd) << fd.error().message;
      close(*fd);
    } else {
      ASSERT_TRUE(ranks.ear(1).wait_for_departures(1));
      auto fd = ranks[1].open(Rank{0}, "later", Deadline::after(kPatience));
      ASSERT_TRUE(fd) << fd.error().message;
      close(*fd);
    }
  });
  auto parked = ranks[0].accept(Rank{2}, "before", Deadline::after(kPatience));
  ASSERT_TRUE(parked) << parked.error().message;
  close(*parked);
  close(*before);
  EXPECT_EQ(ranks[0].open(Rank{2}, "x", Deadline::never()).error().kind, ErrorKind::kRankFailed);
}

// Goal: a socket that nobody took is closed when the rank leaves, so that its peer sees the end.
// Method: open one and let the other side leave without accepting it.
TEST(Session, LeavingClosesWhatNobodyTook) {
  Ranks ranks(2);
  ASSERT_EQ(ranks.errors(), "");
  auto fd = ranks[0].open(Rank{1}, "unwanted", Deadline::after(kPatience));
  ASSERT_TRUE(fd) << fd.error().message;
  ranks[1].leave("");
  pollfd readable{*fd, POLLIN, 0};
  ASSERT_EQ(poll(&readable, 1, 60'000), 1);
  char byte;
  EXPECT_EQ(recv(*fd, &byte, 1, MSG_DONTWAIT), 0);
  close(*fd);
}

// Goal: leaving early disturbs nobody, works twice and from several threads, and says its state.
// Method: inner ranks of nine leave one after the other; the rest flood messages in between.
TEST(Session, SomeLeaveEarly) {
  constexpr int kSize = 9;
  Ranks ranks(kSize);
  ASSERT_EQ(ranks.errors(), "");
  std::size_t left = 0;
  for (const int leaver : {1, 0, 3}) {
    on_threads(3, [&](int) { ranks[leaver].leave("state of " + std::to_string(leaver)); });
    ++left;
    for (const int rank : {2, 4, 5, 6, 7, 8}) {
      ASSERT_TRUE(ranks.ear(rank).wait_for_departures(left));
      const Departure departure = ranks.ear(rank).departures().back();
      EXPECT_EQ(departure.rank, Rank{leaver});
      EXPECT_TRUE(departure.clean) << departure.reason;
      EXPECT_EQ(departure.state, "state of " + std::to_string(leaver));
    }
    ranks[8].flood("after " + std::to_string(leaver));
    for (const int rank : {2, 4, 5, 6, 7}) {
      ASSERT_TRUE(
          ranks.ear(rank).wait_for([left](const Ear& ear) { return ear.noticed.size() == left; }));
    }
  }
}

// Goal: nothing is left behind: no descriptor, no thread, also of starts that failed.
// Method: compare /proc/self before and after jobs that end in different ways.
TEST(Session, LeavesNothingBehind) {
  const auto threads = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
  };
  {
    const Ranks warm_up(2);
    forget_latecomers(local_job(0, 1, launcher_socket()));
  }
  const auto descriptors_before = open_descriptors();
  const auto threads_before = threads();
  {
    Ranks ranks(5);
    ASSERT_EQ(ranks.errors(), "");
    // A socket that nobody takes, and a call that is never answered.
    auto fd = ranks[1].open(Rank{2}, "parked", Deadline::after(kPatience));
    ASSERT_TRUE(fd);
    close(*fd);
    (void)!ranks[3].accept(Rank{4}, "nobody", Deadline::after(1ms));
    ranks[0].leave("");
  }
  {
    const Ranks failing(3, [](Job& job) {
      job.size = job.rank == Rank{2} ? 4 : 3;
      job.start_timeout = 500ms;
    });
    EXPECT_NE(failing.errors(), "");
    // Rank 0 may still wait for who is to be told.
    forget_latecomers(local_job(0, 1, launcher_socket()));
  }
  EXPECT_EQ(open_descriptors(), descriptors_before);
  EXPECT_EQ(threads(), threads_before);
}

// Goal: a message or state too long for the wire is dropped, and what follows still arrives.
// Method: flood one byte too many, then the longest that is allowed.
TEST(Session, MessagesHaveABound) {
  Ranks ranks(2);
  ASSERT_EQ(ranks.errors(), "");
  ranks[0].flood(std::string(kMessageBytesMax + 1, 'x'));
  ranks[0].flood(std::string(kMessageBytesMax, 'y'));
  ASSERT_TRUE(ranks.ear(1).wait_for([](const Ear& ear) { return ear.noticed.size() == 1; }));
  EXPECT_EQ(ranks.ear(1).notices()[0].second, std::string(kMessageBytesMax, 'y'));
  ranks[0].leave(std::string(kMessageBytesMax + 1, 's'));
  ASSERT_TRUE(ranks.ear(1).wait_for_departures(1));
  EXPECT_TRUE(ranks.ear(1).departures()[0].clean);
  EXPECT_EQ(ranks.ear(1).departures()[0].state, "");
}

// Goal: a job can be started again by the same processes with the same launcher's socket.
// Method: three times, with one rank out of step.
TEST(Session, CanBeStartedAgain) {
  const Descriptor socket = launcher_socket();
  on_threads(3, [&](int rank) {
    for (int round = 0; round < 3; ++round) {
      auto session = Session::start(local_job(rank, 3, socket), {}, {});
      ASSERT_TRUE(session) << session.error().message;
      (*session)->leave("");
    }
  });
}

// Goal: a child forked off a rank can drop what it inherited, and the rank does not notice.
// Method: fork; the child destroys the session; the parent floods afterwards.
TEST(Session, AForkedChildMayDropItsCopy) {
  Ranks ranks(2);
  ASSERT_EQ(ranks.errors(), "");
  EXPECT_EQ(status_of_child([&] {
              ranks.sessions[1].reset();
              return 0;
            }),
            0);
  ranks[1].flood("alive");
  EXPECT_TRUE(ranks.ear(0).wait_for([](const Ear& ear) { return ear.noticed.size() == 1; }));
  EXPECT_TRUE(ranks.ear(0).departures().empty());
}

}  // namespace
}  // namespace farandole::test
