// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/membership_log.hpp"

#include <gtest/gtest.h>

namespace farandole {
namespace {

Departure death(int rank) {
  return Departure{Rank{rank}, false, "died", ""};
}

std::vector<Frame> frames_of(const std::string& bytes) {
  FrameReader reader(kControlBytesMax);
  reader.feed(bytes);
  std::vector<Frame> frames;
  while (auto frame = reader.next()) frames.push_back(*std::move(frame));
  return frames;
}

// Goal: each departure counts once; ranks that do not exist are not.
// Method: tell it twice, the second time differently, and of ranks out of range.
TEST(MembershipLog, DepartureCountsOnce) {
  MembershipLog log(4);
  EXPECT_TRUE(log.add(death(2)));
  EXPECT_FALSE(log.add(Departure{Rank{2}, true, "shut down", ""}));
  EXPECT_FALSE(log.add(death(4)));
  EXPECT_FALSE(log.add(death(-1)));
  EXPECT_TRUE(log.failed(2));
  EXPECT_FALSE(log.failed(1));
  EXPECT_EQ(log.gone_count(), 1);
  EXPECT_EQ(log.gone(), (Gone{false, false, true, false}));
}

// Goal: a notice counts once, and late ones of a sender do not.
// Method: numbers out of order and twice, from two senders and from nobody.
TEST(MembershipLog, NoticesCountOnce) {
  MembershipLog log(3);
  EXPECT_TRUE(log.add(Notice{1, 1, "a"}));
  EXPECT_FALSE(log.add(Notice{1, 1, "a"}));
  EXPECT_TRUE(log.add(Notice{1, 3, "c"}));
  EXPECT_FALSE(log.add(Notice{1, 2, "b"}));
  EXPECT_TRUE(log.add(Notice{2, 1, "x"}));
  EXPECT_FALSE(log.add(Notice{3, 1, "y"}));
}

// Goal: a new link hears everything in the order in which it was learnt.
// Method: a mixture; decode the replay.
TEST(MembershipLog, ReplaysInOrder) {
  MembershipLog log(5);
  (void)log.add(Notice{1, 1, "first"});
  (void)log.add(death(3));
  (void)log.add(Departure{Rank{4}, true, "shut down", "state"});
  (void)log.add(Notice{2, 1, "last"});
  const auto frames = frames_of(log.replay());
  ASSERT_EQ(frames.size(), 4u);
  EXPECT_EQ(decode_notice(frames[0].payload)->message, "first");
  EXPECT_EQ(decode_departure(frames[1].payload)->rank, Rank{3});
  EXPECT_EQ(decode_departure(frames[1].payload)->reason, "died");
  EXPECT_TRUE(decode_departure(frames[2].payload)->clean);
  EXPECT_EQ(decode_departure(frames[2].payload)->state, "state");
  EXPECT_EQ(decode_notice(frames[3].payload)->message, "last");
}

// Goal: memory is bounded by forgetting old notices, never departures.
// Method: more notices than are kept, and larger ones, around a departure.
TEST(MembershipLog, ForgetsOldNoticesOnly) {
  MembershipLog log(3);
  for (std::uint64_t i = 1; i <= 300; ++i) (void)log.add(Notice{0, i, "n"});
  (void)log.add(death(1));
  for (std::uint64_t i = 301; i <= 600; ++i) (void)log.add(Notice{0, i, "n"});
  EXPECT_EQ(frames_of(log.replay()).size(), kNoticesKept + 1);
  for (std::uint64_t i = 601; i <= 700; ++i) {
    (void)log.add(Notice{0, i, std::string(kMessageBytesMax, 'x')});
  }
  const auto frames = frames_of(log.replay());
  EXPECT_LE(log.replay().size(), kNoticeBytesKept + kControlBytesMax);
  EXPECT_EQ(frames[0].type, static_cast<std::uint8_t>(ControlFrame::kDeparture));
  EXPECT_EQ(decode_notice(frames.back().payload)->number, 700u);
}

// Goal: a malformed message is no message, cut short or too long.
// Method: every prefix of a departure and of a notice, and each with a byte more.
TEST(MembershipLog, NoticesMalformedMessages) {
  const std::string departure = frames_of(encode(death(1)))[0].payload;
  const std::string notice = frames_of(encode(Notice{1, 2, "text"}))[0].payload;
  for (std::size_t n = 0; n < departure.size(); ++n) {
    EXPECT_FALSE(decode_departure(departure.substr(0, n)));
  }
  for (std::size_t n = 0; n < notice.size(); ++n) EXPECT_FALSE(decode_notice(notice.substr(0, n)));
  EXPECT_FALSE(decode_departure(departure + "x"));
  EXPECT_FALSE(decode_notice(notice + "x"));
}

}  // namespace
}  // namespace farandole
