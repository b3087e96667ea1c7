// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
// Goal: tensors submitted in any order, by any thread, are exchanged as if all ranks had agreed on
// one order, with the right results; errors reach every rank and leave the coordinator usable.
// Method: ranks as threads over real engines; random orders with printed seeds; exact integers.
#include "farandole/coordinator.hpp"

#include <algorithm>
#include <barrier>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "unit/frontend/ranks.hpp"

namespace farandole {
namespace {

using namespace std::chrono_literals;

using Body = std::function<void(Coordinator&, int rank, int size)>;

CoordinatorOptions fast() {
  CoordinatorOptions options;
  options.cycle_time = 200us;
  return options;
}

/// Once where operations run one by one, and once where several do at once.
void with_coordinators(int rank_count, const Body& body, CoordinatorOptions options = fast(),
                       const std::string& transport = "inproc") {
  for (const int operations_max : {1, 4}) {
    SCOPED_TRACE("operations_max " + std::to_string(operations_max));
    options.operations_max = operations_max;
    auto contexts = testing::make_ranks(rank_count, transport);
    testing::run_ranks(contexts, [&](Context& context, Communicator& world) {
      auto coordinator = Coordinator::create(context, world, options);
      ASSERT_TRUE(coordinator) << coordinator.error().message;
      body(**coordinator, world.rank().value(), world.size());
      ASSERT_TRUE(world.barrier());  // nobody closes while others still need this rank
    });
  }
}

TensorCall sum(const std::string& name, std::vector<float>& values) {
  return {.name = name,
          .shape = {static_cast<std::int64_t>(values.size())},
          .in = values.data(),
          .out = values.data()};
}

/// Submits one tensor and waits.
Result<Submission> exchange(Coordinator& coordinator, TensorCall call) {
  auto submitted = coordinator.submit({std::move(call)});
  if (!submitted) return submitted.error();
  Submission submission = submitted->front();
  if (auto waited = submission.wait(); !waited) return waited.error();
  return submission;
}

class Coordinators : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, Coordinators, ::testing::Values("inproc", "fault", "shm", "tcp"));

TEST_P(Coordinators, RunTensorsInWhateverOrderTheyCome) {
  constexpr int kTensors = 40, kSteps = 5;
  with_coordinators(
      4,
      [&](Coordinator& coordinator, int rank, int size) {
        std::mt19937 random(static_cast<unsigned>(rank));
        for (int step = 0; step < kSteps; ++step) {
          std::vector<std::vector<float>> values;
          for (int i = 0; i < kTensors; ++i) {
            values.emplace_back(static_cast<std::size_t>(1 + 37 * i), float(rank + i + step));
          }
          std::vector<int> order(kTensors);
          std::iota(order.begin(), order.end(), 0);
          std::ranges::shuffle(order, random);
          std::vector<Submission> all;
          for (const int i : order) {
            auto submitted =
                coordinator.submit({sum("tensor " + std::to_string(i), values[std::size_t(i)])});
            ASSERT_TRUE(submitted) << submitted.error().message;
            all.push_back(submitted->front());
          }
          for (Submission& submission : all) ASSERT_TRUE(submission.wait());
          const int ranks = size * (size - 1) / 2;
          for (int i = 0; i < kTensors; ++i) {
            const auto expected = float(ranks + size * (i + step));
            for (const float value : values[std::size_t(i)]) ASSERT_EQ(value, expected) << i;
          }
        }
        const Coordinator::Statistics statistics = coordinator.statistics();
        EXPECT_EQ(statistics.tensors, std::uint64_t{kTensors} * kSteps);
        EXPECT_LT(statistics.batches, statistics.tensors) << "nothing was fused";
        EXPECT_EQ(statistics.hits, std::uint64_t{kTensors} * (kSteps - 1));
      },
      fast(), GetParam());
}

TEST(Coordinator, RunsEveryCollective) {
  with_coordinators(3, [](Coordinator& coordinator, int rank, int size) {
    for (int step = 0; step < 3; ++step) {
      // Row r of rank s is 100 s + r; rank s has s + 1 + step rows.
      const int own = rank + 1 + step;
      std::vector<std::int64_t> rows(static_cast<std::size_t>(2 * own));
      for (int i = 0; i < 2 * own; ++i) rows[std::size_t(i)] = 100 * rank + i / 2;
      auto gathered = exchange(coordinator, {.name = "gather",
                                             .collective = Collective::kAllgather,
                                             .dtype = DType::kInt64,
                                             .shape = {own, 2},
                                             .in = rows.data()});
      ASSERT_TRUE(gathered) << gathered.error().message;
      ASSERT_EQ(gathered->shape(), (std::vector<std::int64_t>{6 + 3 * step, 2}));
      ASSERT_EQ(gathered->rows(), (std::vector<std::int64_t>{1 + step, 2 + step, 3 + step}));
      const auto* all = reinterpret_cast<const std::int64_t*>(gathered->data().get());
      for (int from = 0, at = 0; from < size; ++from) {
        for (int i = 0; i < 2 * (from + 1 + step); ++i, ++at)
          ASSERT_EQ(all[at], 100 * from + i / 2);
      }

      // Rank s sends r + 1 rows to rank r.
      std::vector<std::int64_t> sent;
      for (int to = 0; to < size; ++to)
        sent.insert(sent.end(), std::size_t(to + 1), 10 * rank + to);
      auto exchanged = exchange(coordinator, {.name = "exchange",
                                              .collective = Collective::kAlltoall,
                                              .dtype = DType::kInt64,
                                              .shape = {6},
                                              .splits = {1, 2, 3},
                                              .in = sent.data()});
      ASSERT_TRUE(exchanged) << exchanged.error().message;
      ASSERT_EQ(exchanged->rows(), std::vector<std::int64_t>(3, rank + 1));
      const auto* received = reinterpret_cast<const std::int64_t*>(exchanged->data().get());
      for (int i = 0; i < 3 * (rank + 1); ++i) ASSERT_EQ(received[i], 10 * (i / (rank + 1)) + rank);

      // 7 rows over 3 ranks: 3, 2, 2.
      std::vector<std::int32_t> part(7);
      for (int i = 0; i < 7; ++i) part[std::size_t(i)] = (rank + 1) * i;
      auto scattered = exchange(coordinator, {.name = "part",
                                              .collective = Collective::kReducescatter,
                                              .dtype = DType::kInt32,
                                              .shape = {7},
                                              .in = part.data()});
      ASSERT_TRUE(scattered) << scattered.error().message;
      ASSERT_EQ(scattered->shape(), (std::vector<std::int64_t>{rank == 0 ? 3 : 2}));
      const auto* mine = reinterpret_cast<const std::int32_t*>(scattered->data().get());
      const int first = rank == 0 ? 0 : 1 + 2 * rank;
      for (int i = 0; i < scattered->shape()[0]; ++i) ASSERT_EQ(mine[i], 6 * (first + i));

      double word = rank == 2 ? 4.5 : 0.0;
      ASSERT_TRUE(exchange(coordinator, {.name = "word",
                                         .collective = Collective::kBroadcast,
                                         .dtype = DType::kFloat64,
                                         .root = Rank{2},
                                         .in = &word,
                                         .out = &word}));
      ASSERT_EQ(word, 4.5);
      ASSERT_TRUE(exchange(coordinator, {.name = "all", .collective = Collective::kBarrier}));
    }
    EXPECT_EQ(coordinator.statistics().hits, 8u) << "what is cached: all but the barrier";
  });
}

TEST(Coordinator, RefusesANegativeNumberOfOperationsAtOnce) {
  auto contexts = testing::make_ranks(1, "inproc");
  testing::run_ranks(contexts, [&](Context& context, Communicator& world) {
    CoordinatorOptions options = fast();
    options.operations_max = -1;
    const auto refused = Coordinator::create(context, world, options);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind, ErrorKind::kInvalidArgument);
    EXPECT_NE(refused.error().message.find("'operations_max' is -1"), std::string::npos);
  });
}

TEST(Coordinator, RunsAGroupOnceAllOfItIsReady) {
  with_coordinators(2, [](Coordinator& coordinator, int rank, int) {
    std::vector<float> a(3, 1), b(5, 2), c(4, 3);
    if (rank == 1) std::this_thread::sleep_for(20ms);
    auto group = coordinator.submit({sum("a", a), sum("b", b)}, "group");
    ASSERT_TRUE(group);
    ASSERT_TRUE(exchange(coordinator, sum("c", c)));
    for (Submission& member : *group) ASSERT_TRUE(member.wait());
    EXPECT_EQ(a.front() + b.back() + c.front(), 12);
    EXPECT_EQ(coordinator.statistics().batches, 2u);
  });
}

// Empty tensors are anywhere, or nowhere: these are null.
TEST(Coordinator, CopiesNothingThatLiesInOrder) {
  with_coordinators(2, [](Coordinator& coordinator, int rank, int) {
    for (const int empty : {0, 1, 4}) {
      std::vector<float> flat(100, float(rank));
      std::vector<TensorCall> calls;
      for (int i = 0; i < 4; ++i) {
        const std::string number = std::to_string(i);
        if (i < empty) calls.push_back({.name = "empty " + number, .shape = {0}});
        float* data = flat.data() + 25 * i;
        calls.push_back({.name = "part " + number, .shape = {25}, .in = data, .out = data});
      }
      auto group = coordinator.submit(std::move(calls), "parts");
      ASSERT_TRUE(group);
      for (Submission& member : *group) ASSERT_TRUE(member.wait()) << empty;
      EXPECT_EQ(flat, std::vector<float>(100, 1)) << empty;
    }
    EXPECT_EQ(coordinator.statistics().batches_without_copy, 3u);
  });
}

TEST(Coordinator, TakesNewSettingsFromRankZeroOnEveryRank) {
  with_coordinators(3, [](Coordinator& coordinator, int rank, int) {
    const bool leads = rank == 0;
    EXPECT_TRUE(coordinator.configure(leads ? 3ms : 5ms, Bytes{leads ? 77u : 55u}, leads ? -2 : 9));
    std::vector<float> values(8, 1.0f);
    for (int step = 0; step < 3; ++step) {
      ASSERT_TRUE(exchange(coordinator, sum("grad " + std::to_string(step), values)));
    }
    const CoordinatorOptions options = coordinator.options();
    EXPECT_EQ(options.cycle_time, 3ms);
    EXPECT_EQ(options.fusion_threshold, Bytes{77});
    EXPECT_EQ(options.size_shift, -2);
    for (auto refused :
         {coordinator.configure(-1ns, Bytes{1}, 0), coordinator.configure(1ms, Bytes{1}, 17)}) {
      ASSERT_FALSE(refused);
      EXPECT_EQ(refused.error().kind, ErrorKind::kInvalidArgument);
    }
    EXPECT_EQ(coordinator.options().size_shift, -2);
  });
}

TEST(Coordinator, NamesBothSidesOfADisagreement) {
  with_coordinators(3, [](Coordinator& coordinator, int rank, int) {
    for (int step = 0; step < 3; ++step) {
      std::vector<float> values(rank == 2 && step == 1 ? 4u : 6u, 1.0f);
      auto done = exchange(coordinator, sum("grad", values));
      if (step == 1) {
        ASSERT_FALSE(done);
        EXPECT_EQ(done.error().kind, ErrorKind::kMismatch);
        const std::string& message = done.error().message;
        EXPECT_NE(message.find("'grad'"), message.npos) << message;
        EXPECT_NE(message.find("rank 2"), message.npos) << message;
        EXPECT_NE(message.find("[4]"), message.npos) << message;
        EXPECT_NE(message.find("[6]"), message.npos) << message;
      } else {
        ASSERT_TRUE(done) << done.error().message;
        EXPECT_EQ(values.front(), 3.0f);
      }
    }
  });
}

TEST(Coordinator, RefusesWhatMakesNoSenseBeforeAnythingMoves) {
  with_coordinators(2, [](Coordinator& coordinator, int, int) {
    std::vector<float> values(4);
    const auto refused = [&](TensorCall call, const std::string& naming) {
      auto submitted = coordinator.submit({std::move(call)});
      ASSERT_FALSE(submitted) << naming;
      EXPECT_EQ(submitted.error().kind, ErrorKind::kInvalidArgument);
      EXPECT_NE(submitted.error().message.find(naming), std::string::npos)
          << submitted.error().message;
    };
    TensorCall call = sum("", values);
    refused(call, "'name'");
    call = sum("x", values);
    call.shape = {-1};
    refused(call, "'shape'");
    call = sum("x", values);
    call.in = nullptr;
    refused(call, "'in'");
    call = sum("x", values);
    call.collective = Collective::kGather;
    refused(call, "'collective'");
    call = sum("x", values);
    call.collective = Collective::kBroadcast;
    call.root = Rank{2};
    refused(call, "'root'");
    call = sum("x", values);
    call.collective = Collective::kAlltoall;
    call.out = nullptr;
    call.splits = {3, 2};
    refused(call, "'splits'");
    call = sum("x", values);
    call.reduction = Reduction::kBitwiseAnd;
    refused(call, "bitwise_and");
    call.reduction = Reduction::kPremultipliedSum;
    refused(call, "'reduction'");
    call = sum("x", values);
    call.adasum = true;
    call.dtype = DType::kInt32;
    refused(call, "'dtype'");
    auto first = coordinator.submit({sum("twice", values)});
    ASSERT_TRUE(first);
    std::vector<float> other(4);
    refused(sum("twice", other), "'twice'");
    ASSERT_TRUE(first->front().wait());
  });
}

// Goal: an average divides by all ranks, or by those that have not joined; no integer overflows.
// Method: the mean of 1, 2, 3, then of 2, 3, then of 3 alone, and of three bytes near 200.
TEST(Coordinator, AveragesOverAllOrOverThoseThatHaveNotJoined) {
  with_coordinators(3, [](Coordinator& coordinator, int rank, int) {
    const int steps = 2 + 2 * rank;  // rank 2 has the most data
    for (int step = 0; step < steps; ++step) {
      std::vector<float> mean(3, float(rank + 1)), active(mean), least(3, float(10 + rank));
      std::vector<std::uint8_t> bytes(3, std::uint8_t(200 + rank)), active_bytes(bytes);
      const auto average = [](const char* name, auto& values, bool leaves_out_joined) {
        return TensorCall{.name = name,
                          .reduction = Reduction::kAverage,
                          .dtype = sizeof(values[0]) == 1 ? DType::kUInt8 : DType::kFloat32,
                          .shape = {3},
                          .leaves_out_joined = leaves_out_joined,
                          .in = values.data(),
                          .out = values.data()};
      };
      TensorCall minimum = sum("least", least);
      minimum.reduction = Reduction::kMin;
      auto all = coordinator.submit({average("mean", mean, false), average("active", active, true),
                                     average("bytes", bytes, false),
                                     average("active bytes", active_bytes, true), minimum});
      ASSERT_TRUE(all);
      for (Submission& each : *all) ASSERT_TRUE(each.wait());
      EXPECT_EQ(mean.front(), step < 2 ? 2.0f : step < 4 ? 5.0f / 3.0f : 1.0f);
      EXPECT_EQ(active.front(), step < 2 ? 2.0f : step < 4 ? 2.5f : 3.0f);
      EXPECT_EQ(bytes.front(), step < 2 ? 201 : step < 4 ? 134 : 67);
      EXPECT_EQ(active_bytes.front(), step < 4 ? 201 : 202);
      EXPECT_EQ(least.front(), step < 2 ? 10.0f : step < 4 ? 11.0f : 12.0f);
    }
    auto joined = coordinator.join();
    ASSERT_TRUE(joined);
    ASSERT_TRUE(joined->wait());
    EXPECT_EQ(joined->last_joined(), Rank{2});
    std::vector<float> after(2, 1.0f);
    ASSERT_TRUE(exchange(coordinator, sum("after", after)));
    EXPECT_EQ(after.front(), 3.0f);
  });
}

TEST(Coordinator, AddsOrthogonalGradientsAndAveragesEqualOnes) {
  for (const int size : {1, 2, 3, 4, 6, 8}) {
    with_coordinators(size, [](Coordinator& coordinator, int rank, int ranks) {
      std::vector<double> apart(static_cast<std::size_t>(ranks), 0.0), alike(5, 3.0);
      apart[std::size_t(rank)] = rank + 1;
      for (auto* values : {&apart, &alike}) {
        auto done = exchange(coordinator, {.name = "adasum",
                                           .adasum = true,
                                           .dtype = DType::kFloat64,
                                           .shape = {static_cast<std::int64_t>(values->size())},
                                           .in = values->data(),
                                           .out = values->data()});
        ASSERT_TRUE(done) << done.error().message;
      }
      for (int i = 0; i < ranks; ++i) EXPECT_EQ(apart[std::size_t(i)], i + 1);
      EXPECT_EQ(alike, std::vector<double>(5, 3.0));
    });
  }
}

TEST(Coordinator, SaysWhichRankATensorWaitsFor) {
  CoordinatorOptions options = fast();
  options.stall_warning = 300ms;
  options.stall_shutdown = 600ms;
  std::barrier together(3);
  with_coordinators(
      3,
      [&](Coordinator& coordinator, int rank, int) {
        std::vector<float> early(2, 1.0f), late(2, 1.0f);
        if (rank != 2) {
          auto done = exchange(coordinator, sum("forgotten", early));
          ASSERT_FALSE(done);
          EXPECT_EQ(done.error().kind, ErrorKind::kTimedOut);
          EXPECT_NE(done.error().message.find("'forgotten'"), std::string::npos);
          EXPECT_NE(done.error().message.find("rank 2"), std::string::npos) << done.error().message;
        }
        together.arrive_and_wait();
        ASSERT_TRUE(exchange(coordinator, sum("late", late)));
        EXPECT_EQ(late.front(), 3.0f);
      },
      options);
}

TEST(Coordinator, TellsEverybodyWhenARankIsGone) {
  auto contexts = testing::make_ranks(3, "shm");
  testing::run_ranks(contexts, [&](Context& context, Communicator& world) {
    auto coordinator = Coordinator::create(context, world, fast());
    ASSERT_TRUE(coordinator);
    std::vector<float> values(8, 1.0f);
    ASSERT_TRUE(exchange(**coordinator, sum("first", values)));
    if (world.rank() == Rank{1}) {
      context.shutdown();
      return;
    }
    auto done = exchange(**coordinator, sum("second", values));
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().kind, ErrorKind::kRankFailed) << done.error().message;
    ASSERT_FALSE(exchange(**coordinator, sum("third", values)));
  });
}

TEST(Coordinator, ClosesWithRequestsThatNobodyElseMade) {
  auto contexts = testing::make_ranks(2, "inproc");
  testing::run_ranks(contexts, [&](Context& context, Communicator& world) {
    auto coordinator = Coordinator::create(context, world, fast());
    ASSERT_TRUE(coordinator);
    std::vector<float> values(8, 1.0f);
    if (world.rank() != Rank{0}) return;
    auto alone = (*coordinator)->submit({sum("alone", values)});
    ASSERT_TRUE(alone);
    std::this_thread::sleep_for(20ms);
    (*coordinator)->close();
    EXPECT_FALSE(alone->front().wait());
  });
}

TEST(Coordinator, NamesRanksAsTheJobNumbersThem) {
  auto contexts = testing::make_ranks(4, "inproc");
  testing::run_ranks(contexts, [&](Context& context, Communicator& world) {
    const int rank = world.rank().value();
    auto half = world.split(rank / 2, -rank);  // ranks 3 and 2 are 0 and 1 there
    ASSERT_TRUE(half);
    auto coordinator = Coordinator::create(context, **half, fast());
    ASSERT_TRUE(coordinator);
    std::vector<float> values(rank == 2 ? 4u : 6u, 1.0f);
    auto done = exchange(**coordinator, sum("grad", values));
    if (rank >= 2) {
      ASSERT_FALSE(done);
      const std::string& message = done.error().message;
      EXPECT_NE(message.find("rank 3 asked for allreduce sum float32[6], rank 2 for"), message.npos)
          << message;
    } else {
      ASSERT_TRUE(done);
    }
    ASSERT_TRUE(world.barrier());
  });
}

TEST(Coordinator, SeveralWorkSideBySide) {
  auto contexts = testing::make_ranks(4, "inproc");
  testing::run_ranks(contexts, [&](Context& context, Communicator& world) {
    const int rank = world.rank().value();
    auto half = world.split(rank / 2, rank);
    ASSERT_TRUE(half);
    auto everybody = Coordinator::create(context, world, fast());
    auto few = Coordinator::create(context, **half, fast());
    ASSERT_TRUE(everybody && few);
    for (int step = 0; step < 20; ++step) {
      std::vector<float> all(5, 1.0f), some(6, 1.0f);
      // In either order, and under one name.
      auto first =
          (rank % 2 == 0 ? *everybody : *few)->submit({sum("x", rank % 2 == 0 ? all : some)});
      auto second =
          (rank % 2 == 0 ? *few : *everybody)->submit({sum("x", rank % 2 == 0 ? some : all)});
      ASSERT_TRUE(first && second);
      ASSERT_TRUE(first->front().wait());
      ASSERT_TRUE(second->front().wait());
      EXPECT_EQ(all.front(), 4.0f);
      EXPECT_EQ(some.front(), 2.0f);
    }
    ASSERT_TRUE(world.barrier());
  });
}

}  // namespace
}  // namespace farandole
