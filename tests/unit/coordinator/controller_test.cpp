// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "coordinator/controller.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <random>

#include "unit/coordinator/job.hpp"

namespace farandole::coordinator {
namespace {

using namespace std::chrono_literals;
using test::group;
using test::Job;
using test::tensor;
using Names = std::vector<std::string>;

ControllerOptions with_capacity(std::size_t capacity) {
  ControllerOptions options;
  options.cache_capacity = capacity;
  return options;
}

SharedRequest changed(const SharedRequest& request,
                      const std::function<void(TensorRequest&)>& change) {
  TensorRequest copy = *request;
  change(copy);
  return std::make_shared<const TensorRequest>(std::move(copy));
}

void add_everywhere(Job& job, const SharedRequest& request) {
  for (std::int32_t rank = 0; rank < job.rank_count(); ++rank) job.add(rank, request);
}

#define EXPECT_CYCLE(job) EXPECT_TRUE((job).cycle()) << (job).violation()

// Goal: a tensor runs when all ranks have asked, is decided by rank 0 once, and by the cache then.
// Method: three ranks, one of them late; the same again.
TEST(Controller, AsksRankZeroOnce) {
  Job job(3);
  job.add(0, tensor("x"));
  job.add(2, tensor("x"));
  EXPECT_CYCLE(job);
  EXPECT_TRUE(job.talked());
  EXPECT_TRUE(job.last().empty());
  EXPECT_CYCLE(job);
  EXPECT_FALSE(job.talked()) << "what was reported is not reported again";
  job.add(1, tensor("x"));
  EXPECT_CYCLE(job);
  EXPECT_EQ(job.last(), Names{"x"});
  EXPECT_TRUE(job.last_ready(1).front().own);
  EXPECT_TRUE(job.quiet());

  job.add(1, tensor("x"));
  EXPECT_CYCLE(job);
  EXPECT_TRUE(job.last().empty());
  job.add(0, tensor("x"));
  job.add(2, tensor("x"));
  EXPECT_CYCLE(job);
  EXPECT_FALSE(job.talked());
  EXPECT_EQ(job.last(), Names{"x"});
  const Controller::Statistics statistics = job.at(1).statistics();
  EXPECT_EQ(statistics.cycles, 5u);
  EXPECT_EQ(statistics.talks, 2u);
  EXPECT_EQ(statistics.hits, 1u);
  EXPECT_EQ(statistics.misses, 1u);
}

// Goal: one rank alone goes the same way.
// Method: a job of one.
TEST(Controller, WorksAlone) {
  Job job(1);
  for (int i = 0; i < 2; ++i) {
    job.add(0, tensor("x"));
    EXPECT_CYCLE(job);
    EXPECT_EQ(job.talked(), i == 0);
    EXPECT_EQ(job.last(), Names{"x"});
  }
}

// Goal: changes and open work are known, so that an idle process can sleep.
// Method: look before and after each step.
TEST(Controller, KnowsOfChanges) {
  Job job(2);
  EXPECT_FALSE(job.at(0).has_changes());
  EXPECT_FALSE(job.at(0).pending());
  job.add(0, tensor("x"));
  EXPECT_TRUE(job.at(0).has_changes());
  EXPECT_TRUE(job.at(0).in_flight("x"));
  EXPECT_CYCLE(job);
  EXPECT_TRUE(job.at(1).anybody_changed());
  EXPECT_FALSE(job.at(0).has_changes());
  EXPECT_TRUE(job.at(0).pending());
  EXPECT_CYCLE(job);
  EXPECT_FALSE(job.at(1).anybody_changed());
  job.add(1, tensor("x"));
  EXPECT_CYCLE(job);
  EXPECT_FALSE(job.at(0).in_flight("x"));
  job.join(0);
  EXPECT_TRUE(job.at(0).has_changes());
  EXPECT_TRUE(job.at(0).pending());
  EXPECT_TRUE(job.at(0).joined());
}

// Goal: other terms under a name that is cached take its entry away from everybody.
// Method: a hit pends on one rank, another asks for another shape: an error on both; the next use
// of the name works, and so does a shape that changes on all.
TEST(Controller, InvalidatesWhatChanged) {
  Job job(2);
  add_everywhere(job, tensor("x"));
  EXPECT_CYCLE(job);
  job.add(0, tensor("x"));
  EXPECT_CYCLE(job);
  job.add(1, tensor("x", {5}));
  EXPECT_CYCLE(job);
  EXPECT_FALSE(job.at(0).cache().contains("x"));
  EXPECT_CYCLE(job);
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_EQ(job.answers(rank, "x").size(), 2u);
    EXPECT_EQ(job.answers(rank, "x")[1].error,
              "tensor 'x': rank 0 asked for allreduce sum float32[4], rank 1 for allreduce sum "
              "float32[5]");
  }
  EXPECT_FALSE(job.at(0).cache().contains("x"));
  for (const std::int64_t size : {6, 7}) {
    add_everywhere(job, tensor("x", {size}));
    EXPECT_CYCLE(job);
    EXPECT_EQ(job.last(), Names{"x"});
    EXPECT_EQ(job.last_ready(1).front().response.request->shape.front(), size);
    EXPECT_TRUE(job.last_ready(1).front().response.error.empty());
  }
  EXPECT_EQ(job.at(1).statistics().invalidations, 2u);
}

// Goal: an allgather whose rows change stays in the cache.
// Method: other first dimensions on every rank and in every step.
TEST(Controller, CachesAllgathersOfAnyLength) {
  Job job(3);
  for (std::int64_t step = 0; step < 3; ++step) {
    for (int rank = 0; rank < 3; ++rank) {
      job.add(rank, changed(tensor("x", {step + rank, 4}),
                            [](TensorRequest& r) { r.collective = Collective::kAllgather; }));
    }
    EXPECT_CYCLE(job);
    EXPECT_EQ(job.talked(), step == 0);
    EXPECT_EQ(job.last(), Names{"x"});
  }
}

// Goal: a barrier has no terms that could differ and is not cached; capacity 0 caches nothing.
// Method: count the cycles that talk.
TEST(Controller, LeavesBarriersOutOfTheCache) {
  Job job(2);
  const auto barrier =
      changed(tensor("b"), [](TensorRequest& r) { r.collective = Collective::kBarrier; });
  for (int i = 0; i < 2; ++i) {
    job.add(0, barrier);
    job.add(1, changed(barrier, [](TensorRequest& r) { r.dtype = DType::kInt8; }));
    EXPECT_CYCLE(job);
    EXPECT_TRUE(job.talked());
    EXPECT_EQ(job.last(), Names{"b"});
    EXPECT_FALSE(job.answers(0, "b").back().failed);
  }
  Job forgetful(2, with_capacity(0));
  for (int i = 0; i < 2; ++i) {
    add_everywhere(forgetful, tensor("x"));
    EXPECT_CYCLE(forgetful);
    EXPECT_TRUE(forgetful.talked());
  }
  EXPECT_EQ(forgetful.at(0).cache().size(), 0u);
}

// Goal: a hit that pends while its entry is evicted goes the other way.
// Method: a cache of one; rank 0 waits for x while all ask for y.
TEST(Controller, LooksUpAfresh) {
  Job job(2, with_capacity(1));
  add_everywhere(job, tensor("x"));
  EXPECT_CYCLE(job);
  job.add(0, tensor("x"));
  add_everywhere(job, tensor("y"));
  EXPECT_CYCLE(job);
  EXPECT_EQ(job.last(), Names{"y"});
  EXPECT_EQ(job.at(0).statistics().evictions, 1u);
  job.add(1, tensor("x"));
  EXPECT_CYCLE(job);
  EXPECT_EQ(job.last(), Names{"x"});
}

// Goal: a group runs as one, at the place of its first member, from rank 0 and from the cache.
// Method: another tensor between; a rank that lacks the group; a group of which one is cached.
TEST(Controller, RunsGroupsWhole) {
  Job job(2);
  const auto ab = group("g", {"a", "b"});
  job.add(0, ab);
  job.add(0, tensor("c"));
  job.add(1, tensor("c"));
  EXPECT_CYCLE(job);
  EXPECT_EQ(job.last(), Names{"c"});
  job.add(1, ab);
  EXPECT_CYCLE(job);
  EXPECT_EQ(job.last(), (Names{"a", "b"}));
  job.add(0, ab);
  job.add(1, ab);
  EXPECT_CYCLE(job);
  EXPECT_FALSE(job.talked());
  EXPECT_EQ(job.last(), (Names{"a", "b"}));

  Job tiny(2, with_capacity(1));
  for (int step = 0; step < 3; ++step) {
    tiny.add(0, ab);
    EXPECT_CYCLE(tiny);
    EXPECT_TRUE(tiny.last().empty());
    tiny.add(1, ab);
    for (int i = 0; i < 2 && tiny.last().empty(); ++i) EXPECT_CYCLE(tiny);
    EXPECT_EQ(tiny.last(), (Names{"a", "b"}));
  }
}

// Goal: requests that come together without a label are no group.
// Method: two at once on one rank, one of them on the other; a second time from the cache.
TEST(Controller, NeedsALabelForAGroup) {
  Job job(2);
  for (int step = 0; step < 2; ++step) {
    job.add(0, {tensor("a"), tensor("b")});
    job.add(1, tensor("a"));
    EXPECT_CYCLE(job);
    EXPECT_EQ(job.last(), Names{"a"});
    job.add(1, tensor("b"));
    EXPECT_CYCLE(job);
    EXPECT_EQ(job.last(), Names{"b"});
  }
}

// Goal: what is wrong with one member fails the group, everywhere, once everybody has asked.
// Method: another dtype of one member; members alone on one rank; other names under the label,
// from rank 0 and, where both were cached, after their common name was ready.
TEST(Controller, FailsGroupsWhole) {
  Job job(2);
  auto ab = group("g", {"a", "b"});
  job.add(0, ab);
  job.add(1, {changed(ab[0], [](TensorRequest& r) { r.dtype = DType::kInt32; }), ab[1]});
  EXPECT_CYCLE(job);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_NE(job.answers(rank, "a").at(0).error.find("int32[4]"), std::string::npos);
    EXPECT_TRUE(job.answers(rank, "b").at(0).error.starts_with(
        "tensor 'b' fails with its group 'g': tensor 'a': rank 0 asked for"));
  }
  job.add(0, ab);
  job.add(1, tensor("a"));
  EXPECT_CYCLE(job);
  EXPECT_TRUE(job.last().empty()) << "b may still come, and would then wait for ever";
  job.add(1, tensor("b"));
  EXPECT_CYCLE(job);
  EXPECT_EQ(job.open_count(0) + job.open_count(1), 0u);
  EXPECT_TRUE(job.answers(1, "b").at(1).failed);

  job.add(0, ab);
  job.add(1, group("g", {"a", "c"}));
  EXPECT_CYCLE(job);
  EXPECT_EQ(job.open_count(0) + job.open_count(1), 0u);
  EXPECT_NE(job.answers(1, "c").at(0).error.find("group 'g' of 2 got 3 names: 'a' from ranks 0 and "
                                                 "1, 'b' from rank 0, 'c' from rank 1"),
            std::string::npos)
      << job.answers(1, "c").at(0).error;
}

TEST(Controller, KeepsGroupsOfTheCacheWhole) {
  Job job(2);
  for (const auto& requests : {group("g", {"a", "b"}), group("g", {"a", "c"})}) {
    job.add(0, requests);
    job.add(1, requests);
    EXPECT_CYCLE(job);
    EXPECT_EQ(job.open_count(0), 0u);
  }
  job.add(0, group("g", {"a", "b"}));
  job.add(1, group("g", {"a", "c"}));
  EXPECT_CYCLE(job);
  ASSERT_TRUE(job.last().empty()) << "a alone";
  job.wait(61s);  // then rank 0 is asked
  EXPECT_CYCLE(job);
  EXPECT_CYCLE(job);
  EXPECT_EQ(job.open_count(0) + job.open_count(1), 0u);
  EXPECT_TRUE(job.answers(0, "a").back().failed);
}

// Goal: two groups that share a name on disagreeing ranks fail together.
// Method: rank 0 puts x with y, rank 1 with z.
TEST(Controller, FailsGroupsThatShareAName) {
  Job job(2);
  job.add(0, group("g", {"x", "y"}));
  job.add(1, group("h", {"x", "z"}));
  EXPECT_CYCLE(job);
  EXPECT_EQ(job.open_count(0) + job.open_count(1), 0u);
  EXPECT_TRUE(job.answers(0, "y").at(0).failed);
  EXPECT_TRUE(job.answers(1, "z").at(0).failed);
}

// Goal: ranks without data take part; an average knows how many do not; the last one is known.
// Method: rank 1 joins, a tensor runs from rank 0 and from the cache; then the others join.
TEST(Controller, JoinsUntilAllHave) {
  Job job(3);
  job.join(1);
  job.add(0, tensor("x"));
  job.add(2, tensor("x"));
  EXPECT_CYCLE(job);
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(job.last(), Names{"x"});
    EXPECT_EQ(*job.last_ready(1).front().joined, RankSet::of(1));
    EXPECT_FALSE(job.last_ready(1).front().own);
    job.add(0, tensor("x"));
    job.add(2, tensor("x"));
    EXPECT_CYCLE(job);
    EXPECT_FALSE(job.talked());
  }
  job.join(2);
  EXPECT_CYCLE(job);
  EXPECT_TRUE(job.all_joined().empty());
  EXPECT_TRUE(job.at(1).joined());
  job.join(0);
  EXPECT_CYCLE(job);
  EXPECT_EQ(job.all_joined(), std::vector<std::int32_t>{0});
  EXPECT_TRUE(job.quiet());
  EXPECT_FALSE(job.at(1).joined());
  add_everywhere(job, tensor("x"));
  EXPECT_CYCLE(job);
  EXPECT_TRUE(job.last_ready(0).front().joined->empty());
  for (int rank = 0; rank < 3; ++rank) job.join(rank);
  EXPECT_CYCLE(job);
  EXPECT_EQ(job.all_joined(), (std::vector<std::int32_t>{0, 2})) << "of a tie the highest";
}

// Goal: what a rank asked for before it joined still gets its data.
// Method: as a hit and as a miss; two ranks that join with requests that the other never makes.
TEST(Controller, JoinsAfterAsking) {
  for (const std::size_t capacity : {0, 8}) {
    Job job(2, with_capacity(capacity));
    add_everywhere(job, tensor("x"));
    EXPECT_CYCLE(job);
    job.add(1, tensor("x"));
    job.join(1);
    EXPECT_CYCLE(job);
    job.add(0, tensor("x"));
    EXPECT_CYCLE(job);
    ASSERT_EQ(job.last(), Names{"x"});
    EXPECT_TRUE(job.last_ready(1).front().own);
    EXPECT_TRUE(job.last_ready(1).front().joined->empty());
    job.add(0, tensor("x"));
    EXPECT_CYCLE(job);
    EXPECT_EQ(*job.last_ready(0).front().joined, RankSet::of(1));

    Job other(2, with_capacity(capacity));
    for (const std::string name : {"y", "z"}) add_everywhere(other, tensor(name));
    EXPECT_CYCLE(other);
    other.add(0, tensor("y"));
    other.add(1, tensor("z"));
    EXPECT_CYCLE(other);
    other.join(0);
    other.join(1);
    EXPECT_CYCLE(other);
    EXPECT_TRUE(other.quiet());
    EXPECT_EQ(other.answers(0, "y").at(1).joined, RankSet::of(1));
    EXPECT_EQ(other.answers(1, "z").at(1).joined, RankSet::of(0));
  }
}

// Goal: a rank that asks although it has joined takes part with its data, too.
// Method: both ask in one cycle for what the cache holds.
TEST(Controller, MayAskAfterJoining) {
  Job job(2);
  add_everywhere(job, tensor("x"));
  EXPECT_CYCLE(job);
  job.join(1);
  EXPECT_CYCLE(job);
  add_everywhere(job, tensor("x"));
  EXPECT_CYCLE(job);
  EXPECT_TRUE(job.last().empty()) << "the cache would run it without data of rank 1";
  EXPECT_CYCLE(job);
  ASSERT_EQ(job.last(), std::vector<std::string>{"x"});
  EXPECT_TRUE(job.last_ready(1).front().own);
  EXPECT_TRUE(job.last_ready(1).front().joined->empty());
}

// Goal: what cannot run without data of a rank that has joined is an error.
// Method: a broadcast from it and an Adasum, from rank 0 and from the cache, alone and in a group.
TEST(Controller, ObjectsToMissingData) {
  const auto broadcast = changed(tensor("x"), [](TensorRequest& r) {
    r.collective = Collective::kBroadcast;
    r.root = 1;
  });
  const auto adasum = changed(tensor("x"), [](TensorRequest& r) { r.adasum = true; });
  for (const SharedRequest& request : {broadcast, adasum}) {
    for (const bool cached : {false, true}) {
      for (const bool grouped : {false, true}) {
        std::vector<SharedRequest> requests{request};
        if (grouped) requests = group("g", {"x", "y"});
        if (grouped) {
          requests[0] = changed(request, [](TensorRequest& r) { r.group = "g", r.group_size = 2; });
        }
        Job job(2);
        if (cached) {
          job.add(0, requests);
          job.add(1, requests);
          EXPECT_CYCLE(job);
        }
        job.join(1);
        EXPECT_CYCLE(job);
        job.add(0, requests);
        EXPECT_CYCLE(job);
        EXPECT_EQ(job.talked(), !cached);
        EXPECT_TRUE(job.answers(0, "x").back().failed);
        EXPECT_TRUE(!grouped || job.answers(0, "y").back().failed);
        EXPECT_FALSE(job.at(0).cache().contains("x"));
        EXPECT_EQ(job.open_count(0), 0u);
      }
    }
  }
}

// Goal: who is missing is said once; what waits too long is an error, if that is wanted, and the
// name can be used again.
// Method: a clock that jumps; a miss, and a hit, which rank 0 has to be told of first.
TEST(Controller, ReportsStalls) {
  ControllerOptions options;
  options.stall_shutdown = 200s;
  Job job(6, options);
  for (const int rank : {0, 1, 3, 4}) job.add(rank, tensor("x", {3}));
  EXPECT_CYCLE(job);
  job.wait(61s);
  EXPECT_CYCLE(job);
  EXPECT_CYCLE(job);
  EXPECT_EQ(job.at(0).take_stalls(),
            Names{"tensor 'x' (allreduce sum float32[3]) waits since 61 s for ranks 2 and 5; "
                  "ranks 0, 1, 3 and 4 have asked for it"});
  job.wait(140s);
  EXPECT_CYCLE(job);
  EXPECT_EQ(job.last(), Names{"x"});
  EXPECT_TRUE(job.answers(4, "x").at(0).error.find("for ranks 2 and 5") != std::string::npos);
  EXPECT_TRUE(job.quiet());
  add_everywhere(job, tensor("x", {3}));
  EXPECT_CYCLE(job);
  EXPECT_EQ(job.last(), Names{"x"});

  job.add(1, tensor("x", {3}));
  EXPECT_CYCLE(job);
  job.wait(61s);
  EXPECT_CYCLE(job);
  EXPECT_TRUE(job.talked());
  job.wait(61s);
  EXPECT_CYCLE(job);
  EXPECT_FALSE(job.talked());
  EXPECT_EQ(job.at(0).take_stalls(),
            Names{"tensor 'x' (allreduce sum float32[3]) waits since 61 s for ranks 0 and 2 to 5; "
                  "rank 1 has asked for it"});
  for (const int rank : {0, 2, 3, 4, 5}) job.add(rank, tensor("x", {3}));
  EXPECT_CYCLE(job);
  EXPECT_EQ(job.last(), Names{"x"});
}

// Goal: settings change on all ranks in the same cycle.
// Method: propose, look, run a cycle, look.
TEST(Controller, SpreadsParameters) {
  ControllerOptions options;
  options.parameters = {7, 8, 1};
  Job job(3, options);
  EXPECT_EQ(job.at(2).parameters(), (Parameters{7, 8, 1}));
  job.at(0).propose_parameters({9, 10, -2});
  EXPECT_TRUE(job.at(0).has_changes());
  EXPECT_EQ(job.at(0).parameters(), (Parameters{7, 8, 1}));
  EXPECT_CYCLE(job);
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_EQ(job.at(rank).parameters(), (Parameters{9, 10, -2}));
  EXPECT_CYCLE(job);
  EXPECT_FALSE(job.talked());
}

// Goal: what comes while a cycle runs waits for the next one, and is not taken for what others
// asked for.
// Method: add between the steps of a cycle of one rank that another rank decides for.
TEST(Controller, MayBeAddedToWithinACycle) {
  ControllerOptions options;
  options.stall_shutdown = 10s;
  Controller controller(options);
  const Clock::time_point start{};
  const auto words = controller.propose(start);
  controller.add({tensor("x")}, start);
  controller.conclude(words);
  Decision decision;
  decision.responses.push_back({tensor("x"), "waited too long for rank 0", {}});
  controller.apply(decision);
  const std::vector<Ready> ready = controller.ready();
  ASSERT_EQ(ready.size(), 1u);
  EXPECT_FALSE(ready.front().own);
  EXPECT_TRUE(controller.in_flight("x"));
  EXPECT_TRUE(controller.ready().empty());
}

// Goal: in a steady loop rank 0 is asked in the first step only.
// Method: count over 20 steps of 161 tensors, in an order of its own on every rank and spread
// over two cycles.
TEST(Controller, NeverTalksInASteadyLoop) {
  constexpr int kRanks = 4, kTensors = 161, kSteps = 20;
  Job job(kRanks);
  std::mt19937_64 random(1);
  for (int step = 0; step < kSteps; ++step) {
    const std::uint64_t talks = job.at(0).statistics().talks;
    std::vector<std::vector<SharedRequest>> orders(kRanks);
    for (auto& order : orders) {
      for (int i = 0; i < kTensors; ++i) order.push_back(tensor("gradient." + std::to_string(i)));
      std::shuffle(order.begin(), order.end(), random);
    }
    for (int half = 0; half < 2; ++half) {
      for (int rank = 0; rank < kRanks; ++rank) {
        auto& order = orders[static_cast<std::size_t>(rank)];
        const std::size_t left = half == 0 ? kTensors / 2 : 0;
        for (; order.size() > left; order.pop_back()) job.add(rank, order.back());
      }
      EXPECT_CYCLE(job);
    }
    EXPECT_TRUE(job.quiet());
    EXPECT_EQ(job.at(0).statistics().talks - talks, step == 0 ? 2u : 0u);
  }
  EXPECT_EQ(job.at(3).statistics().hits, kTensors * (kSteps - 1));
}

}  // namespace
}  // namespace farandole::coordinator
