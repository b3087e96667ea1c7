// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
// Goal: a delegate runs collectives as any algorithm does: by name, or because its price is the
// least; it starts once its input is there; calls that it does not take run by schedules;
// deadlines, deaths, mismatches and its own failures end as they do for schedules, and what is
// called next is right.
// Method: copier.hpp over ranks that are threads. It reduces in the order of ranks, on whole
// numbers whose sums are exact.
#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <string>
#include <vector>

#include "unit/frontend/copier.hpp"
#include "unit/frontend/ranks.hpp"

namespace farandole::testing {
namespace {

Result<void> sum(Communicator& world, std::vector<float>& data, const std::string& algorithm = "",
                 Reduction reduction = Reduction::kSum) {
  return world.allreduce(data.data(), data.data(), Count{data.size()}, DType::kFloat32, reduction,
                         {.algorithm = algorithm, .name = "weights"});
}

void expect_sums_work(Communicator& world, const std::string& algorithm) {
  std::vector<float> ones(1000, 1.0F);
  const auto done = sum(world, ones, algorithm);
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(ones, std::vector<float>(1000, static_cast<float>(world.size())));
}

/// Calls that ran by this plan, on the context's communicators.
std::uint64_t calls_by(Context& context, const std::string& label) {
  const auto plans = context.statistics().plans;
  const auto found = plans.find(label);
  return found == plans.end() ? 0 : found->second.calls;
}

class DelegateRuns : public ::testing::TestWithParam<std::string> {};

TEST_P(DelegateRuns, EveryCollectiveThatItHas) {
  const std::string name = Copier::add("copier");
  Contexts contexts = make_ranks(3, GetParam());
  run_ranks(contexts, [&](Context& context, Communicator& world) {
    const int rank = world.rank().value();
    for (const std::size_t n : {0u, 1u, 1000u}) {
      for (int repeat = 0; repeat < 2; ++repeat) {
        std::vector<std::int64_t> in(n), out(n), all(3 * n);
        std::iota(in.begin(), in.end(), 100 * rank);
        const CallOptions by{.algorithm = name};
        ASSERT_TRUE(
            world.allreduce(in.data(), out.data(), Count{n}, DType::kInt64, Reduction::kSum, by));
        for (std::size_t i = 0; i < n; ++i) {
          ASSERT_EQ(out[i], 300 + 3 * static_cast<std::int64_t>(i));
        }
        ASSERT_TRUE(world.allgather(in.data(), all.data(), Count{n}, DType::kInt64, by));
        for (std::size_t i = 0; i < 3 * n; ++i) {
          ASSERT_EQ(all[i], static_cast<std::int64_t>(100 * (i / n) + i % n));
        }
        ASSERT_TRUE(world.broadcast(in.data(), out.data(), Count{n}, DType::kInt64, Rank{2}, by));
        if (n > 0) {
          ASSERT_EQ(out[0], 200);
        }
      }
    }
    expect_sums_work(world, name);
    expect_sums_work(world, "ring");
    EXPECT_EQ(calls_by(context, "allreduce copier"), 7u);
    EXPECT_EQ(calls_by(context, "broadcast copier"), 6u);
  });
}

TEST_P(DelegateRuns, InTheBackgroundAndOnPartsOfTheRanks) {
  const std::string name = Copier::add("copier");
  Contexts contexts = make_ranks(4, GetParam());
  run_ranks(contexts, [&](Context&, Communicator& world) {
    auto half = world.split(world.rank().value() % 2, 0);
    ASSERT_TRUE(half);
    std::vector<std::vector<float>> data(8, std::vector<float>(500, 1.0F));
    std::vector<Request> requests;
    for (std::size_t i = 0; i < data.size(); ++i) {
      Communicator& by = i % 2 == 0 ? world : **half;
      auto started = by.start(Collective::kAllreduce, data[i].data(), data[i].data(), Count{500},
                              DType::kFloat32, Reduction::kSum, Rank{0}, {.algorithm = name});
      ASSERT_TRUE(started) << started.error().message;
      requests.push_back(*std::move(started));
    }
    for (std::size_t i = 0; i < data.size(); ++i) {
      ASSERT_TRUE(requests[i].wait());
      EXPECT_EQ(data[i], std::vector<float>(500, i % 2 == 0 ? 4.0F : 2.0F));
    }
  });
}

TEST_P(DelegateRuns, OnlyWhatItTakes) {
  const std::string name = Copier::add("copier");
  Contexts contexts = make_ranks(2, GetParam());
  run_ranks(contexts, [&](Context&, Communicator& world) {
    std::vector<float> data(10, 2.0F);
    const auto average = sum(world, data, name, Reduction::kAverage);
    ASSERT_FALSE(average);
    EXPECT_EQ(average.error().message,
              "allreduce: argument 'algorithm' is copier, allowed is one that takes float32 "
              "average in memory of device 'cpu'.");
    std::vector<std::int32_t> whole(10, 2);
    EXPECT_FALSE(world.allreduce(whole.data(), whole.data(), Count{10}, DType::kInt32,
                                 Reduction::kAverage, {.algorithm = name}));
    EXPECT_FALSE(world.allreduce(data.data(), data.data(), Count{10}, DType::kFloat32,
                                 Reduction::kSum, {.algorithm = name, .deterministic = true}));
    // Set as the choice for all calls of this size, it is taken where it can be.
    ASSERT_TRUE(world.set_algorithm(Collective::kAllreduce, Bytes{40}, name));
    EXPECT_EQ(world.algorithm(Collective::kAllreduce, Bytes{40}), name);
    ASSERT_TRUE(sum(world, data, "", Reduction::kAverage));
    EXPECT_EQ(data[0], 2.0F);
    ASSERT_TRUE(sum(world, data));
    EXPECT_EQ(data[0], 4.0F);
    ASSERT_TRUE(
        world.allreduce(whole.data(), whole.data(), Count{10}, DType::kInt32, Reduction::kAverage));
    EXPECT_EQ(whole[0], 2);
  });
}

// The input comes late, and of another value than before.
TEST_P(DelegateRuns, StartsOnceItsInputIsThere) {
  const std::string name = Copier::add("copier");
  Contexts contexts = make_ranks(2, GetParam());
  run_ranks(contexts, [&](Context&, Communicator& world) {
    for (int turn = 0; turn < 2; ++turn) {
      std::vector<float> data(100, -1.0F);
      std::atomic<std::uint32_t> in{0}, out{0};
      auto request =
          world.start(Collective::kAllreduce, data.data(), data.data(), Count{100}, DType::kFloat32,
                      Reduction::kSum, Rank{0}, {.algorithm = name, .gate = {&in, 7, &out, 9}});
      ASSERT_TRUE(request) << request.error().message;
      for (int look = 0; look < 100; ++look) {
        EXPECT_FALSE(*request->test());
      }
      EXPECT_EQ(out, 0u);
      data.assign(100, 3.0F);
      in.store(7, std::memory_order_release);
      ASSERT_TRUE(request->wait());
      EXPECT_EQ(out, 9u);
      EXPECT_EQ(data, std::vector<float>(100, 6.0F));
    }
  });
}

TEST_P(DelegateRuns, MismatchesAreToldEverywhere) {
  const std::string name = Copier::add("copier");
  Contexts contexts = make_ranks(3, GetParam());
  run_ranks(contexts, [&](Context&, Communicator& world) {
    const bool odd = world.rank() == Rank{1};
    std::vector<float> data(1000, 1.0F);
    const auto expect_mismatch = [&](const Result<void>& outcome) {
      ASSERT_FALSE(outcome);
      EXPECT_EQ(outcome.error().kind, ErrorKind::kMismatch) << outcome.error().message;
      EXPECT_NE(outcome.error().message.find("weights"), std::string::npos);
      expect_sums_work(world, name);
      expect_sums_work(world, "ring");
    };
    expect_mismatch(sum(world, data, odd ? "ring" : name));
    expect_mismatch(sum(world, data, odd ? name : "ring"));
    data.resize(odd ? 999 : 1000);
    expect_mismatch(sum(world, data, name));
  });
}

TEST_P(DelegateRuns, ItsFailuresAreToldEverywhere) {
  const std::string at_start = Copier::add("copier_stuck", {.fails_at_start = Rank{1}});
  const std::string later = Copier::add("copier_broken", {.fails_later = Rank{2}});
  Contexts contexts = make_ranks(3, GetParam());
  run_ranks(contexts, [&](Context&, Communicator& world) {
    std::vector<float> data(1000, 1.0F);
    for (const auto& [name, words, rank] : {std::tuple(at_start, "the copier would not start", 1),
                                            std::tuple(later, "the copier broke down", 2)}) {
      const auto outcome = sum(world, data, name);
      ASSERT_FALSE(outcome) << name;
      EXPECT_NE(outcome.error().message.find(words), std::string::npos) << outcome.error().message;
      EXPECT_EQ(outcome.error().kind,
                world.rank() == Rank{rank} ? ErrorKind::kInternal : ErrorKind::kMismatch);
      expect_sums_work(world, "ring");
    }
  });
}

TEST_P(DelegateRuns, RankThatLeavesFailsIt) {
  const std::string name = Copier::add("copier");
  Contexts contexts = make_ranks(3, GetParam());
  run_ranks(contexts, [&](Context& context, Communicator& world) {
    expect_sums_work(world, name);
    if (world.rank() == Rank{2}) return (void)context.shutdown();
    std::vector<float> data(1000, 1.0F);
    const auto outcome = sum(world, data, name);
    ASSERT_FALSE(outcome);
    EXPECT_EQ(outcome.error().kind, ErrorKind::kRankFailed) << outcome.error().message;
  });
}

TEST_P(DelegateRuns, AbortEndsIt) {
  const std::string name = Copier::add("copier");
  Contexts contexts = make_ranks(2, GetParam());
  run_ranks(contexts, [&](Context&, Communicator& world) {
    std::vector<float> data(1000, 1.0F);
    if (world.rank() == Rank{1}) {
      ASSERT_TRUE(world.abort("enough"));
      return;
    }
    const auto outcome = sum(world, data, name);
    ASSERT_FALSE(outcome);
    EXPECT_EQ(outcome.error().kind, ErrorKind::kAborted) << outcome.error().message;
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, DelegateRuns, ::testing::Values("inproc", "shm"));

TEST(DelegateDeadline, EndsACallThatARankDoesNotJoin) {
  const std::string name = Copier::add("copier");
  setenv("FARANDOLE_OPERATION_TIMEOUT", "0.2", 1);
  Contexts contexts = make_ranks(2, "inproc");
  unsetenv("FARANDOLE_OPERATION_TIMEOUT");
  std::atomic<bool> told{false};
  run_ranks(contexts, [&](Context&, Communicator& world) {
    std::vector<float> data(1000, 1.0F);
    if (world.rank() == Rank{1}) return told.wait(false);
    const auto outcome = sum(world, data, name);
    ASSERT_FALSE(outcome);
    EXPECT_EQ(outcome.error().kind, ErrorKind::kTimedOut) << outcome.error().message;
    EXPECT_NE(outcome.error().message.find("by copier: the delegate runs"), std::string::npos)
        << outcome.error().message;
    told = true;
    told.notify_all();
  });
}

TEST(DelegateThatReachesNobody, IsNotTaken) {
  Copier::cheap = Copier::add("copier_alone", {.reaches_nobody = true});
  {
    Contexts contexts = make_ranks(2, "inproc");
    run_ranks(contexts, [&](Context&, Communicator& world) {
      EXPECT_NE(world.algorithm(Collective::kAllreduce, Bytes{4000}), "copier_alone");
      expect_sums_work(world, "");
      std::vector<float> data(1000, 3.0F);
      const auto outcome = sum(world, data, "copier_alone");
      ASSERT_FALSE(outcome);
      EXPECT_EQ(outcome.error().kind, ErrorKind::kInvalidArgument);
      EXPECT_NE(outcome.error().message.find("reaches all ranks"), std::string::npos);
    });
  }
  Copier::cheap.clear();
}

TEST(DelegatePriced, IsTakenWhereItIsTheFastest) {
  Copier::cheap = Copier::add("copier_free");
  {
    Contexts contexts = make_ranks(3, "inproc");
    run_ranks(contexts, [&](Context& context, Communicator& world) {
      EXPECT_EQ(world.algorithm(Collective::kAllreduce, Bytes{4000}), "copier_free");
      expect_sums_work(world, "");
      std::vector<float> data(1000, 3.0F);
      ASSERT_TRUE(sum(world, data, "", Reduction::kAverage));
      EXPECT_EQ(data[0], 3.0F);
      EXPECT_EQ(calls_by(context, "allreduce copier_free"), 1u);
    });
  }
  Copier::cheap.clear();
}

// The fake device owns all memory, and the copier is for that of the CPU.
TEST(DelegatePriced, IsNotTakenForMemoryOfADeviceThatItDoesNotKnow) {
  Copier::cheap = Copier::add("copier_free");
  {
    Contexts contexts = make_ranks(2, "device");
    run_ranks(contexts, [&](Context& context, Communicator& world) {
      expect_sums_work(world, "");
      EXPECT_EQ(calls_by(context, "allreduce copier_free"), 0u);
      std::vector<float> data(1000, 3.0F);
      const auto outcome = sum(world, data, "copier_free");
      ASSERT_FALSE(outcome);
      EXPECT_EQ(outcome.error().kind, ErrorKind::kInvalidArgument);
      EXPECT_NE(outcome.error().message.find("memory of device 'fake'"), std::string::npos);
    });
  }
  Copier::cheap.clear();
}

}  // namespace
}  // namespace farandole::testing
