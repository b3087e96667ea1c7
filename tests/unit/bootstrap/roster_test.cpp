// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/roster.hpp"

#include <gtest/gtest.h>

#include "bootstrap/rendezvous.hpp"

namespace farandole {
namespace {

Member member(int rank) {
  return Member{Rank{rank}, rank % 2,
                "host",     "identity",
                100 + rank, {{"shm.fd", "7"}, {"binary", std::string("\0\xff", 2)}, {"empty", ""}}};
}

// Goal: registrations, rosters and failures arrive as they were sent, or not at all.
// Method: encode and decode; every prefix and a byte too many are refused.
TEST(Roster, SurvivesTheWire) {
  const std::string registration = encode(Registration{member(3), {"10.0.0.1", 5}, 4});
  const auto again = decode_registration(registration);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->member.record, member(3).record);
  EXPECT_EQ(again->member.pid, 103);
  EXPECT_EQ(text(again->listener), "10.0.0.1:5");
  EXPECT_EQ(again->size, 4);

  const Roster roster{"run", {member(0), member(1)}, {{"::1", 1}, {"127.0.0.1", 2}}};
  const auto copy = decode_roster(encode(roster));
  ASSERT_TRUE(copy);
  EXPECT_EQ(copy->run, "run");
  EXPECT_EQ(copy->members[1].local_rank, 1);
  EXPECT_EQ(text(copy->listeners[0]), "[::1]:1");

  for (std::size_t n = 0; n < registration.size(); ++n) {
    EXPECT_FALSE(decode_registration(registration.substr(0, n)));
  }
  for (std::size_t n = 0; n < encode(roster).size(); ++n) {
    EXPECT_FALSE(decode_roster(encode(roster).substr(0, n)));
  }
  EXPECT_FALSE(decode_registration(registration + "x"));
  EXPECT_FALSE(decode_roster(encode(roster) + "x"));
}

// Goal: a roster whose ranks are not 0, 1, 2, ... or that announces more than it holds is refused.
// Method: two members in the wrong order; a count of four thousand million.
TEST(Roster, MustBeInOrder) {
  EXPECT_FALSE(decode_roster(encode(Roster{"r", {member(1), member(0)}, {{}, {}}})));
  EXPECT_FALSE(decode_roster(Writer().text("r").u32(0xffffffff).text("x").bytes()));
}

// Goal: an error keeps its kind and its culprit on the way to the other ranks.
// Method: with and without culprit; malformed ones become internal errors.
TEST(RendezvousFailure, SurvivesTheWire) {
  const Error error{ErrorKind::kRankFailed, "rank 3 went", ProcessName{3, "host", 7}};
  const Error copy = decode_failure(encode_failure(error));
  EXPECT_EQ(copy.kind, error.kind);
  EXPECT_EQ(copy.message, error.message);
  ASSERT_TRUE(copy.culprit);
  EXPECT_EQ(copy.culprit->rank, 3);
  EXPECT_EQ(copy.culprit->pid, 7);
  EXPECT_FALSE(decode_failure(encode_failure({ErrorKind::kTimedOut, "late"})).culprit);
  EXPECT_EQ(decode_failure("").kind, ErrorKind::kInternal);
  EXPECT_EQ(decode_failure("\x63").kind, ErrorKind::kInternal);
}

// Goal: lists of ranks read well and stay short; times have no needless digits.
// Method: examples.
TEST(Describe, IsReadable) {
  EXPECT_EQ(describe(std::vector<int>{2}), "rank 2");
  EXPECT_EQ(describe(std::vector<int>{2, 5, 6, 7}), "ranks 2, 5-7");
  EXPECT_EQ(describe(std::vector<int>{1, 2}), "ranks 1, 2");
  std::vector<int> even;
  for (int rank = 0; rank < 200; rank += 2) even.push_back(rank);
  EXPECT_TRUE(describe(even).ends_with("28, 30 and 84 more")) << describe(even);
  EXPECT_EQ(describe(std::chrono::milliseconds(30000)), "30 s");
  EXPECT_EQ(describe(std::chrono::milliseconds(500)), "0.5 s");
  EXPECT_EQ(describe(member(3)), "rank 3 (host host, pid 103)");
}

}  // namespace
}  // namespace farandole
