// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/listener.hpp"

#include <gtest/gtest.h>

#include "bootstrap/dial.hpp"
#include "unit/bootstrap/ranks.hpp"

namespace farandole::test {
namespace {

/// A listener and its visitors, all on the test's thread.
class ListenerTest : public testing::Test {
 protected:
  void open(std::size_t visitors_max, Clock::duration handshake_time) {
    Descriptor socket = launcher_socket();
    address_ = *numeric_address(local_endpoint(socket.fd()));
    listener_.emplace(std::move(socket), Secret("secret"), visitors_max, handshake_time);
  }
  Dial dial(const std::string& secret) {
    return Dial(address_, Secret(secret), Identity{Purpose::kControl, 1, "job", ""},
                Deadline::after(kPatience));
  }
  /// Turns the loop until `ready`; false after kPatience.
  bool turn_until(const std::function<bool()>& ready, Dial* dial = nullptr) {
    const Deadline deadline = Deadline::after(kPatience);
    while (!ready() && !deadline.passed()) {
      PollSet set;
      set.wake_by(Clock::now() + 10ms);
      listener_->watch(set);
      if (dial != nullptr) dial->watch(set);
      set.wait();
      if (dial != nullptr) dial->serve(set);
      listener_->serve(
          set,
          {[](const Identity& identity) {
             return identity.job == "job" ? Verdict::kWelcome : Verdict::kAnotherJob;
           },
           [this](const Identity&, Descriptor socket) { welcomed_.push_back(std::move(socket)); }});
    }
    return ready();
  }
  bool enter() {
    Dial one = dial("secret");
    return turn_until([&] { return one.outcome() != Dial::Outcome::kWorking; }, &one) &&
           one.answered(Verdict::kWelcome);
  }

  Address address_;
  std::optional<Listener> listener_;
  std::vector<Descriptor> welcomed_;
};

// Goal: a visitor who says nothing is dropped in time and counted.
// Method: connect, say nothing, read until the listener has hung up.
TEST_F(ListenerTest, DropsWhoStalls) {
  open(8, 50ms);
  Channel silent(start_connecting(address_));
  EXPECT_TRUE(turn_until([&] {
    (void)silent.read(1);
    return silent.ended();
  }));
  EXPECT_EQ(listener_->rejected_connections(), 1u);
}

// Goal: visitors who hold connections open shut no member out.
// Method: three silent visitors where two are allowed; the oldest goes, and a member enters.
TEST_F(ListenerTest, DropsTheOldestOfTooMany) {
  open(2, kPatience);
  Channel first(start_connecting(address_));
  Channel second(start_connecting(address_));
  Channel third(start_connecting(address_));
  EXPECT_TRUE(turn_until([&] { return listener_->rejected_connections() == 1; }));
  EXPECT_TRUE(turn_until([&] {
    (void)first.read(1);
    return first.ended();
  }));
  EXPECT_TRUE(enter());
  (void)third.read(1);
  EXPECT_FALSE(third.ended());
}

// Goal: who does not share the secret is counted once it knows; members are not.
// Method: one of each; and one who goes away without a word.
TEST_F(ListenerTest, CountsRejectedConnectionsOnly) {
  open(8, kPatience);
  EXPECT_TRUE(enter());
  Channel(start_connecting(address_)).take().close();
  EXPECT_TRUE(enter());
  EXPECT_EQ(listener_->rejected_connections(), 0u);
  {
    Dial outsider = dial("another secret");
    EXPECT_TRUE(
        turn_until([&] { return outsider.outcome() != Dial::Outcome::kWorking; }, &outsider));
    EXPECT_EQ(outsider.outcome(), Dial::Outcome::kOfAnotherJob);
  }
  EXPECT_TRUE(turn_until([&] { return listener_->rejected_connections() == 1; }));
  EXPECT_EQ(welcomed_.size(), 2u);
}

// Goal: what a member sends right after the handshake is left for whoever takes the socket.
// Method: send a byte with the last word of the handshake under way; read it from the socket.
TEST_F(ListenerTest, ReadsNoByteTooMany) {
  open(8, kPatience);
  ASSERT_TRUE([&] {
    Dial member = dial("secret");
    if (!turn_until([&] { return member.outcome() != Dial::Outcome::kWorking; }, &member)) {
      return false;
    }
    Channel channel(member.take());
    channel.send("x");
    channel.finish();
    return true;
  }());
  ASSERT_EQ(welcomed_.size(), 1u);
  Channel taken(std::move(welcomed_[0]));
  std::string got;
  EXPECT_TRUE(turn_until([&] {
    got += taken.read(8);
    return taken.ended();
  }));
  EXPECT_EQ(got, "x");
}

// Goal: nobody at a port, and somebody who never answers, are told apart.
// Method: a port just closed; a listener that nobody serves.
TEST_F(ListenerTest, ADialTellsRefusalFromSilence) {
  open(8, kPatience);
  Dial silent(address_, Secret("secret"), Identity{}, Deadline::after(20ms));
  const auto until_over = [](Dial& one) {
    while (one.outcome() == Dial::Outcome::kWorking) {
      PollSet set;
      one.watch(set);
      set.wait();
      one.serve(set);
    }
    return one.outcome();
  };
  EXPECT_EQ(until_over(silent), Dial::Outcome::kUnreachable);
  listener_->close();
  Dial refused(address_, Secret("secret"), Identity{}, Deadline::after(kPatience));
  EXPECT_EQ(until_over(refused), Dial::Outcome::kRefused);
}

}  // namespace
}  // namespace farandole::test
