// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <array>
#include <mutex>
#include <string>
#include <thread>

#include "engine/collective.hpp"
#include "schedule/passes/synchronize.hpp"
#include "transport/inproc/inproc.hpp"

namespace farandole {
namespace {

using namespace std::chrono_literals;

/// Two engines that exchange messages; what they flood is kept, and passed on by hand.
class TwoEngines : public ::testing::Test {
 protected:
  void SetUp() override {
    auto made = make_inproc(2);
    ASSERT_TRUE(made);
    ranks_ = *std::move(made);
    std::array<std::thread, 2> connecting;
    for (int rank = 0; rank < 2; ++rank) {
      connecting[at(rank)] = std::thread([this, rank] {
        const std::array peer = {Rank{1 - rank}};
        EXPECT_TRUE(ranks_[at(rank)].transport->connect(peer, Deadline::after(20s)));
      });
    }
    for (std::thread& thread : connecting) thread.join();
    for (int rank = 0; rank < 2; ++rank) {
      EngineOptions options;
      options.self = Rank{rank};
      options.describe = [](const Signature& signature) { return std::to_string(signature.count); };
      options.flood = [this, rank](std::string_view message) {
        const std::lock_guard lock(mutex_);
        flooded_[at(rank)].emplace_back(message);
      };
      ThreadRank& own = ranks_[at(rank)];
      engines_[at(rank)] = Engine::create({own.transport.get()}, *own.doorbell, std::move(options));
    }
  }

  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }
  Engine& engine(int rank) { return *engines_[at(rank)]; }
  void join(int rank) { engine(rank).joined(pair(), next_); }
  static Group pair() {
    Group group;
    group.world_ranks = {Rank{0}, Rank{1}};
    return group;
  }

  /// A barrier whose messages say `count`, in the background.
  std::shared_ptr<CollectiveOperation> start(int rank, std::uint64_t count, const Gate& gate = {},
                                             std::shared_ptr<Group> group = nullptr) {
    if (group == nullptr) group = std::make_shared<Group>(pair());
    group->self = Rank{rank};
    group->transports = {nullptr, nullptr};
    group->transports[at(1 - rank)] = ranks_[at(rank)].transport.get();
    Schedule schedule;
    schedule.collective = Collective::kBarrier;
    schedule.rank_count = 2;
    schedule.chunk_count = 0;
    auto verified = verify(synchronized(std::move(schedule)));
    EXPECT_TRUE(verified);
    CollectiveSpec spec;
    spec.terms = {std::move(group), "", gate, 60s, 0};
    spec.device = std::make_shared<CpuDevice>();
    Binding binding;
    binding.program = std::make_shared<const Program>(specialize(*verified, rank));
    auto bound = BoundProgram::bind(std::move(binding), flow_of(spec.terms.group));
    EXPECT_TRUE(bound);
    spec.bound = *std::move(bound);
    spec.signature.count = count;
    auto operation = std::make_shared<CollectiveOperation>(std::move(spec));
    engine(rank).submit(operation, true);
    return operation;
  }

  void pass_on(int from) {
    const std::lock_guard lock(mutex_);
    for (const std::string& message : flooded_[at(from)]) {
      engine(1 - from).notice(Rank{from}, message);
    }
    flooded_[at(from)].clear();
  }
  std::size_t flooded(int rank) {
    const std::lock_guard lock(mutex_);
    return flooded_[at(rank)].size();
  }
  void wait_for_flood(int rank) {
    const Deadline end = Deadline::after(20s);
    while (flooded(rank) == 0 && !end.passed()) std::this_thread::yield();
    ASSERT_GT(flooded(rank), 0u);
  }
  bool ends(int rank, Operation& operation, std::chrono::milliseconds within = 20s) {
    return engine(rank).wait(operation, Ticks::now(), Deadline::after(within));
  }
  void expect_mismatch(int rank, Operation& operation, const std::string& words) {
    ASSERT_TRUE(ends(rank, operation));
    ASSERT_FALSE(operation.outcome());
    EXPECT_EQ(operation.outcome().error().kind, ErrorKind::kMismatch);
    EXPECT_NE(operation.outcome().error().message.find(words), std::string::npos)
        << operation.outcome().error().message;
  }

  // Members are destroyed from the last to the first: engines before what they run on.
  std::vector<ThreadRank> ranks_;
  std::atomic<std::uint32_t> next_{0};
  std::mutex mutex_;
  std::array<std::vector<std::string>, 2> flooded_;
  std::array<std::unique_ptr<Engine>, 2> engines_;
};

// Goal: an operation that stands still is claimed, once; not by a rank that has heard the same from
// another one, before it started or after. Then it ends well however late the other one comes.
TEST_F(TwoEngines, OneClaimIsEnough) {
  join(0);
  auto waiting = start(0, 7);
  wait_for_flood(0);
  EXPECT_FALSE(ends(0, *waiting, 200ms));
  EXPECT_EQ(flooded(0), 1u);
  join(1);
  pass_on(0);
  auto late = start(1, 7);
  ASSERT_TRUE(ends(0, *waiting) && ends(1, *late));
  EXPECT_TRUE(waiting->outcome() && late->outcome());
  EXPECT_EQ(flooded(0) + flooded(1), 0u);
}

// Goal: whoever waits gives up its core. Method: two threads wait for one operation, of which one
// at most moves messages; both must have gone to sleep, other than by yielding.
TEST_F(TwoEngines, WaitingThreadsSleep) {
  join(0);
  auto waiting = start(0, 7);
  std::array<long, 2> sleeps{};
  std::array<std::thread, 2> threads;
  for (std::size_t i = 0; i < threads.size(); ++i) {
    threads[i] = std::thread([&, i] {
      rusage before{}, after{};
      getrusage(RUSAGE_THREAD, &before);
      EXPECT_FALSE(ends(0, *waiting, 500ms));
      getrusage(RUSAGE_THREAD, &after);
      sleeps[i] = after.ru_nvcsw - before.ru_nvcsw;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(sleeps[0], 0);
  EXPECT_GT(sleeps[1], 0);
}

// The claim comes after the call and before its input: the gate opens only then.
TEST_F(TwoEngines, WhoHasHeardTheSameBeforeItsInputIsThereIsSilent) {
  join(0);
  std::atomic<std::uint32_t> word{0};
  auto waiting = start(0, 7, {.in = &word, .in_value = 1});
  EXPECT_FALSE(ends(0, *waiting, 50ms));
  const Claim early{{0, 0}, Rank{0}, Rank{1}, {.count = 7}};
  engine(0).notice(Rank{1}, encode(std::array{early}));
  EXPECT_FALSE(ends(0, *waiting, 50ms));
  word.store(1, std::memory_order_release);
  EXPECT_FALSE(ends(0, *waiting, 300ms));
  EXPECT_EQ(flooded(0), 0u);
  join(1);
  auto late = start(1, 7);
  ASSERT_TRUE(ends(0, *waiting) && ends(1, *late));
  EXPECT_TRUE(waiting->outcome() && late->outcome());
}

TEST_F(TwoEngines, WhoHasHeardTheSameIsSilent) {
  join(0);
  const Claim before{{0, 0}, Rank{0}, Rank{1}, {.count = 7}};
  engine(0).notice(Rank{1}, encode(std::array{before}));
  auto waiting = start(0, 7);
  EXPECT_FALSE(ends(0, *waiting, 300ms));
  EXPECT_EQ(flooded(0), 0u);
  auto late = start(1, 7);
  ASSERT_TRUE(ends(0, *waiting) && ends(1, *late));
  EXPECT_TRUE(waiting->outcome() && late->outcome());
}

// Goal: a claim that another rank contradicts fails the operation on both, whether that has started
// it already or does so later.
TEST_F(TwoEngines, AnotherSignatureIsReported) {
  for (const bool started : {true, false}) {
    join(0);
    const Claim other{{0, 0}, Rank{0}, Rank{1}, {.count = 8}};
    std::shared_ptr<CollectiveOperation> waiting;
    if (started) waiting = start(0, 7);
    engine(0).notice(Rank{1}, encode(std::array{other}));
    if (!started) waiting = start(0, 7);
    expect_mismatch(0, *waiting, "rank 0 asked for 7, rank 1 for 8");
    const std::lock_guard lock(mutex_);
    ASSERT_GE(flooded_[0].size(), 1u);
    const auto told = decode_disagreement(flooded_[0].back());
    ASSERT_TRUE(told);
    EXPECT_EQ(told->reported.count, 7u);
    EXPECT_EQ(told->seen.count, 8u);
    flooded_[0].clear();
  }
}

// Goal: a rank to which it was told that an operation fails before it knew the communicator is told
// again. Method: rank 0 excuses itself; rank 1 hears of it and joins only then.
TEST_F(TwoEngines, WhoMissedTheNewsIsToldAgain) {
  join(0);
  next_ = 1;
  engine(0).excuse(pair(), 0, Error{ErrorKind::kInternal, "no room"});
  wait_for_flood(0);
  pass_on(0);
  join(1);
  auto waiting = start(1, 7);
  wait_for_flood(1);
  EXPECT_FALSE(waiting->finished());
  pass_on(1);
  wait_for_flood(0);
  pass_on(0);
  expect_mismatch(1, *waiting, "rank 0 could not take part in barrier");
  expect_mismatch(1, *waiting, "no room");
}

// Goal: who cannot take part for want of a third rank does not take the blame for it.
// Method: rank 0 has lost rank 5 while it connected, and says so before the death is known to
// rank 1.
TEST_F(TwoEngines, AnExcuseNamesTheRankThatIsLost) {
  join(0);
  next_ = 1;
  Error lost{ErrorKind::kRankFailed, "rank 5 (host h, pid 50) died while the ranks connected."};
  lost.culprit = ProcessName{5, "h", 50};
  engine(0).excuse(pair(), 0, lost);
  wait_for_flood(0);
  join(1);
  auto waiting = start(1, 7);
  pass_on(0);
  ASSERT_TRUE(ends(1, *waiting));
  const Error& told = waiting->outcome().error();
  EXPECT_EQ(told.kind, ErrorKind::kRankFailed);
  ASSERT_TRUE(told.culprit);
  EXPECT_EQ(told.culprit->rank, 5);
  EXPECT_TRUE(told.message.starts_with("rank 5 (host h, pid 50) died while the ranks connected."));
  EXPECT_NE(told.message.find("rank 0 could not take part in barrier"), std::string::npos);
}

// Goal: an abort ends what comes later, too, also what was submitted before the caller could know.
// Method: submit to the engine, which the front end's own check does not reach, once it has heard.
TEST_F(TwoEngines, AnAbortEndsWhatIsSubmittedLater) {
  const auto group = std::make_shared<Group>(pair());
  engine(0).joined(*group, next_);
  engine(0).abort(*group, "enough");
  (void)engine(0).state();  // answered after the abort
  const auto late = start(0, 7, {}, group);
  ASSERT_TRUE(ends(0, *late, 5s));
  ASSERT_FALSE(late->outcome());
  EXPECT_EQ(late->outcome().error().kind, ErrorKind::kAborted);
}

// Goal: what others claim about communicators that this rank is no member of is forgotten at once.
// Method: a thousand claims; then one operation of its own, about which nothing was said.
TEST_F(TwoEngines, ClaimsOfOthersConcernNobody) {
  join(0);
  join(1);
  for (std::uint32_t i = 0; i < 1000; ++i) {
    engine(0).notice(Rank{1}, encode(std::array{Claim{{5, i}, Rank{0}, Rank{1}, {.count = i}}}));
  }
  auto one = start(0, 7), two = start(1, 7);
  ASSERT_TRUE(ends(0, *one) && ends(1, *two));
  EXPECT_TRUE(one->outcome() && two->outcome());
}

/// An operation of one rank that hands its engine another one while it runs itself.
class HandingOn final : public Operation {
 public:
  HandingOn(std::shared_ptr<const Group> group, Engine* engine, std::shared_ptr<Operation> another)
      : Operation({std::move(group), "", {}, 60s, 0}),
        engine_(engine),
        another_(std::move(another)) {}
  std::optional<Rank> lost_peer() const override { return std::nullopt; }
  void withdraw(FinalState&) const override {}
  bool done_by(Rank, const FinalState&) const override { return true; }
  std::string description() const override { return "handing on"; }
  std::string state() const override { return description(); }

 private:
  bool begin() override {
    if (another_ != nullptr) engine_->submit(std::move(another_), true);
    finish();
    return true;
  }
  bool advance() override { return false; }
  bool cancel() override { return true; }
  std::uint64_t progress() const override { return 0; }
  Engine* const engine_;
  std::shared_ptr<Operation> another_;
};

// Goal: what is submitted while the last driver ends its own operation is run by the progress
// thread. Method: an operation that submits another one in its only step; nobody waits for that.
TEST_F(TwoEngines, WhatIsSubmittedToALeavingDriverRuns) {
  for (int i = 0; i < 20; ++i) {
    const auto group = std::make_shared<const Group>(pair());
    const auto second = std::make_shared<HandingOn>(group, nullptr, nullptr);
    const auto first = std::make_shared<HandingOn>(group, &engine(0), second);
    ASSERT_TRUE(engine(0).run(*first));
    const Deadline end = Deadline::after(20s);
    while (!second->finished() && !end.passed()) std::this_thread::yield();
    ASSERT_TRUE(second->finished());
  }
}

}  // namespace
}  // namespace farandole
