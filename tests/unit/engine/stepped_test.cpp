// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <vector>

#include "engine/collective.hpp"
#include "engine/engine.hpp"
#include "schedule/passes/synchronize.hpp"
#include "transport/sim/sim_transport.hpp"

namespace farandole {
namespace {

using namespace std::chrono_literals;

/// Two engines without threads on a simulated network, in virtual time.
class SteppedEngines : public ::testing::Test {
 protected:
  SteppedEngines() {
    for (const int rank : {0, 1}) {
      One& one = ranks_.emplace_back();
      one.doorbell = *Doorbell::create(armed_[at(rank)]);
      one.transport =
          std::make_unique<sim::SimTransport>(Rank{rank}, network_, sim::SimTransport::Options{});
      EngineOptions options;
      options.self = Rank{rank};
      options.describe = [](const Signature& signature) { return std::to_string(signature.count); };
      options.flood = [](std::string_view) {};
      one.engine = Engine::create_stepped({one.transport.get()}, *one.doorbell, std::move(options));
      join(rank);
    }
  }

  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }
  Engine& engine(int rank) { return *ranks_[at(rank)].engine; }
  void join(int rank) { engine(rank).joined(*group(rank), next_); }
  std::shared_ptr<const Group> group(int rank) {
    auto& group = ranks_[at(rank)].group;
    if (group == nullptr) {
      auto made = std::make_shared<Group>();
      made->self = Rank{rank};
      made->world_ranks = {Rank{0}, Rank{1}};
      made->transports = {nullptr, nullptr};
      made->transports[at(1 - rank)] = ranks_[at(rank)].transport.get();
      group = std::move(made);
    }
    return group;
  }

  std::shared_ptr<CollectiveOperation> barrier(int rank, std::uint32_t sequence,
                                               Clock::duration timeout = 60s) {
    Schedule schedule;
    schedule.collective = Collective::kBarrier;
    schedule.rank_count = 2;
    schedule.chunk_count = 0;
    auto verified = verify(synchronized(std::move(schedule)));
    EXPECT_TRUE(verified);
    CollectiveSpec spec;
    spec.terms = {group(rank), "", {}, timeout, 1};
    spec.id = {0, sequence};
    spec.device = std::make_shared<CpuDevice>();
    Binding binding;
    binding.program = std::make_shared<const Program>(specialize(*verified, rank));
    auto bound = BoundProgram::bind(std::move(binding), flow_of(spec.terms.group));
    EXPECT_TRUE(bound);
    spec.bound = *std::move(bound);
    auto operation = std::make_shared<CollectiveOperation>(std::move(spec));
    engine(rank).submit(operation, true);
    return operation;
  }
  /// Lets so much time pass, and both engines look at it ten times a second.
  void pass(Clock::duration time) {
    const Clock::time_point end = time_.now() + time;
    do {
      for (int i = 0; i < 3; ++i) (void)(engine(0).turn(), engine(1).turn());
      time_.advance_to(std::min(end, time_.now() + 100ms));
    } while (time_.now() < end);
    for (int i = 0; i < 3; ++i) (void)(engine(0).turn(), engine(1).turn());
  }

  struct One {
    std::unique_ptr<Doorbell> doorbell;
    std::unique_ptr<sim::SimTransport> transport;
    std::shared_ptr<const Group> group;
    std::unique_ptr<Engine> engine;
  };
  VirtualTime time_{Clock::time_point(1h)};
  std::array<std::atomic<std::uint32_t>, 2> armed_{};
  sim::Network network_{{.rank_count = 2, .wake = {}}};
  std::atomic<std::uint32_t> next_{0};
  std::vector<One> ranks_;
};

// Goal: an operation ends at its deadline, not before, and nothing runs on its communicator any
// more. Method: rank 1 comes after the time-out; then both call once more.
TEST_F(SteppedEngines, ATimeOutBreaksItsCommunicator) {
  auto waiting = barrier(0, 0, 1s);
  pass(900ms);
  EXPECT_FALSE(waiting->finished());
  pass(300ms);
  ASSERT_TRUE(waiting->finished());
  EXPECT_EQ(waiting->outcome().error().kind, ErrorKind::kTimedOut);
  auto again = barrier(0, 1), peers = barrier(1, 1);
  pass(1ms);
  ASSERT_TRUE(again->finished());
  ASSERT_FALSE(again->outcome());
  EXPECT_EQ(again->outcome().error().kind, ErrorKind::kTimedOut);
  EXPECT_FALSE(peers->finished());
}

// Goal: a connection that broke without a word from the control plane ends what waits for its peer.
// Method: a suspicion alone.
TEST_F(SteppedEngines, ASuspectIsGoneAfterAWhile) {
  auto waiting = barrier(0, 0);
  engine(0).suspect(Rank{1});
  pass(500ms);
  EXPECT_FALSE(waiting->finished());
  pass(500ms);
  ASSERT_TRUE(waiting->finished());
  ASSERT_FALSE(waiting->outcome());
  EXPECT_EQ(waiting->outcome().error().kind, ErrorKind::kRankFailed);
  EXPECT_EQ(waiting->outcome().error().culprit->rank, 1);
}

// Goal: an operation that runs again has its whole time again. Method: two seconds after the first
// run, rank 1 comes half a second late.
TEST_F(SteppedEngines, AnOperationThatRunsAgainHasItsWholeTime) {
  auto mine = barrier(0, 0, 1s);
  pass(100ms);
  barrier(1, 0);
  pass(2s);
  ASSERT_TRUE(mine->finished() && mine->outcome());
  mine->renew(nullptr, nullptr, "", 1, {});
  mine->set_id({0, 1});
  engine(0).submit(mine, true);
  pass(500ms);
  EXPECT_FALSE(mine->finished());
  barrier(1, 1);
  pass(1ms);
  ASSERT_TRUE(mine->finished());
  EXPECT_TRUE(mine->outcome());
}

// Goal: what was said about a communicator that is no more harms no later one of its number.
// Method: rank 0 hears of a disagreement on an operation that it has not started, frees the
// communicator, and joins one with the same number.
TEST_F(SteppedEngines, WordsAboutAFreedCommunicatorAreForgotten) {
  Disagreement disagreement{.id = {0, 0}, .first = Rank{0}, .reporter = Rank{1}, .other = Rank{0}};
  disagreement.seen.count = 5;
  engine(0).notice(Rank{1}, encode(disagreement));
  pass(1ms);
  engine(0).left(*group(0));
  pass(1ms);
  join(0);
  auto one = barrier(0, 0), two = barrier(1, 0);
  pass(1ms);
  ASSERT_TRUE(one->finished() && two->finished());
  EXPECT_TRUE(one->outcome()) << one->outcome().error().message;
}

// Goal: nor does a disagreement about an operation that this rank never starts as its own, since a
// later one has begun. Method: of two operations the second starts first.
TEST_F(SteppedEngines, WordsAboutPassedOperationsAreForgotten) {
  engine(0).notice(Rank{1}, encode(Disagreement{.id = {0, 0}, .first = Rank{0}}));
  pass(1ms);
  auto later = barrier(0, 1), peers = barrier(1, 1);
  pass(1ms);
  ASSERT_TRUE(later->finished() && later->outcome());
  auto earlier = barrier(0, 0), its = barrier(1, 0);
  pass(1ms);
  ASSERT_TRUE(earlier->finished());
  EXPECT_TRUE(earlier->outcome());
}

}  // namespace
}  // namespace farandole
