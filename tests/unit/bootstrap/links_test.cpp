// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/links.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <vector>

#include "unit/bootstrap/ranks.hpp"

namespace farandole::test {
namespace {

/// A rank's links and the listener that they need, without a thread: they live while turned.
struct Node {
  Node(Job made, Descriptor socket, Roster told)
      : job(std::move(made)),
        roster(std::move(told)),
        listener(std::move(socket), job.secret, 8),
        events(ear.events()),
        probes(job, roster),
        links(job, roster, probes, events) {}

  /// One turn of a control thread's loop; one that is `mute` only answers who calls.
  void turn(bool mute = false) {
    if (gone()) return;
    PollSet set;
    set.wake_by(Clock::now() + 1ms);
    listener.watch(set);
    if (!mute) links.watch(set);
    probes.watch(set);
    set.wait();
    probes.serve(set);
    if (!mute) links.serve(set);
    listener.serve(set, {[this](const Identity& visitor) {
                           return visitor.purpose == Purpose::kProbe ? Verdict::kNotNow
                                                                     : links.admit(visitor.rank);
                         },
                         [this](const Identity& visitor, Descriptor socket) {
                           links.enter(visitor.rank, std::move(socket));
                         }});
    if (links.closed()) listener.close();
  }
  bool gone() const { return listener.fd() < 0; }

  const Job job;
  const Roster roster;
  Listener listener;
  Ear ear;
  const Session::Events events;
  Probes probes;
  Links links;
};

/// All ranks of a job, which meet as they are turned.
struct Nodes {
  explicit Nodes(int size, std::chrono::milliseconds timeout = 30s) {
    std::vector<Descriptor> sockets;
    Roster roster{"run", {}, {}};
    for (int rank = 0; rank < size; ++rank) {
      sockets.push_back(launcher_socket());
      roster.listeners.push_back(local_endpoint(sockets.back().fd()));
    }
    for (int rank = 0; rank < size; ++rank) {
      Descriptor& socket = sockets[static_cast<std::size_t>(rank)];
      Job job = local_job(rank, size, socket);
      job.timeout = timeout;
      all.push_back(std::make_unique<Node>(std::move(job), std::move(socket), roster));
    }
  }
  Node& operator[](int rank) { return *all[static_cast<std::size_t>(rank)]; }

  /// Turns the ranks that are awake until `ready`; false after `time`.
  bool turn_until(const std::vector<int>& awake, const std::function<bool()>& ready,
                  Clock::duration time = kPatience) {
    const Deadline deadline = Deadline::after(time);
    while (!ready() && !deadline.passed()) {
      for (const int rank : awake) (*this)[rank].turn();
    }
    return ready();
  }

  std::vector<std::unique_ptr<Node>> all;
};

// Goal: ranks that leave right after the start are not taken for dead by one that is slow.
// Method: ranks 0 and 1 meet and leave while rank 2 has not made its first turn; for longer than
// any leaving takes they wait for it; then it hears both departures, and all end.
TEST(Links, LeavingWaitsForASlowNeighbour) {
  Nodes nodes(3);
  nodes[0].links.flood("hello");
  ASSERT_TRUE(nodes.turn_until({0, 1}, [&] { return !nodes[1].ear.notices().empty(); }));
  nodes[1].links.leave("one");
  ASSERT_TRUE(nodes.turn_until({0, 1}, [&] { return !nodes[0].ear.departures().empty(); }));
  nodes[0].links.leave("zero");
  EXPECT_FALSE(nodes.turn_until({0, 1}, [&] { return nodes[0].gone() || nodes[1].gone(); }, 600ms));

  ASSERT_TRUE(nodes.turn_until({0, 1, 2}, [&] { return nodes[2].ear.departures().size() == 2; }));
  for (const Departure& departure : nodes[2].ear.departures()) {
    EXPECT_TRUE(departure.clean) << departure.reason;
    EXPECT_EQ(departure.state, departure.rank == Rank{0} ? "zero" : "one");
  }
  EXPECT_TRUE(nodes.turn_until({0, 1, 2}, [&] { return nodes[0].gone() && nodes[1].gone(); }));
  EXPECT_TRUE(nodes[0].ear.notices().empty());
}

// Goal: a neighbour that says nothing on its link but answers questions counts as alive, and once
// it does not answer either it is given up. Method: rank 1 goes mute for much longer than the
// timeout, then is not turned at all.
TEST(Links, ASilentNeighbourThatAnswersStays) {
  constexpr auto kTimeout = 1s;
  Nodes nodes(2, kTimeout);
  nodes[0].links.flood("hello");
  ASSERT_TRUE(nodes.turn_until({0, 1}, [&] { return !nodes[1].ear.notices().empty(); }));
  const auto departed = [&] { return !nodes[0].ear.departures().empty(); };
  const auto turned = [&] {
    nodes[1].turn(true);
    return departed();
  };
  EXPECT_FALSE(nodes.turn_until({0}, turned, 5 * kTimeout / 2));
  ASSERT_TRUE(nodes.turn_until({0}, departed));
  EXPECT_EQ(nodes[0].ear.departures()[0].reason, "went silent for 1 s");
}

}  // namespace
}  // namespace farandole::test
