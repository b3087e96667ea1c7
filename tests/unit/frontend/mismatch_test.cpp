// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <latch>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "unit/frontend/ranks.hpp"

namespace farandole::testing {
namespace {

class Mismatch : public ::testing::TestWithParam<std::string> {};

Result<void> sum(Communicator& world, std::vector<float>& data, CallOptions options = {}) {
  return world.allreduce(data.data(), data.data(), Count{data.size()}, DType::kFloat32,
                         Reduction::kSum, options);
}

void expect_sums_work(Communicator& world) {
  std::vector<float> good(5, 1.0F);
  const auto after = sum(world, good);
  ASSERT_TRUE(after) << after.error().message;
  EXPECT_EQ(good.back(), static_cast<float>(world.size()));
}

void free(Communicator& communicator) {
  EXPECT_TRUE(communicator.free());
}

void expect_mismatch(const Result<void>& outcome, const std::string& words) {
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().kind, ErrorKind::kMismatch) << outcome.error().message;
  EXPECT_NE(outcome.error().message.find(words), std::string::npos) << outcome.error().message;
}

// Goal: ranks that each name themselves as the root are all told, although none needs a message of
// another one to do what it believes is to be done. Method: every collective with a root, short,
// long and without elements, on 2 to 4 ranks.
TEST_P(Mismatch, EveryRankItsOwnRoot) {
  for (const int size : {2, 3, 4}) {
    Contexts contexts = make_ranks(size, GetParam());
    run_ranks(contexts, [](Context&, Communicator& world) {
      for (const std::size_t n : {0u, 4u, 50'000u}) {
        const auto ranks = static_cast<std::size_t>(world.size());
        std::vector<float> in(n * ranks, 1.0F), out(n * ranks);
        for (const Collective collective : {Collective::kBroadcast, Collective::kReduce,
                                            Collective::kGather, Collective::kScatter}) {
          expect_mismatch(world.run(collective, in.data(), out.data(), Count{n}, DType::kFloat32,
                                    Reduction::kSum, world.rank()),
                          "root");
          expect_sums_work(world);
        }
      }
    });
  }
}

// Goal: where only the lengths of messages show that ranks disagree, all are told, also those that
// have got all that they expected. Method: rank 0 sends one element too many to each other rank in
// turn, so that the message is one of the first or of the last.
TEST_P(Mismatch, AlltoallOfUnlikeCounts) {
  Contexts contexts = make_ranks(4, GetParam());
  run_ranks(contexts, [](Context&, Communicator& world) {
    for (const std::size_t dest : {1u, 2u, 3u}) {
      std::vector<std::size_t> send(4, 3), receive(4, 3);
      if (world.rank() == Rank{0}) send[dest] = 4;
      std::vector<float> in(13), out(12);
      const Arguments arguments{.collective = Collective::kAlltoall,
                                .in = in.data(),
                                .out = out.data(),
                                .dtype = DType::kFloat32,
                                .by_rank = true,
                                .in_counts = send,
                                .out_counts = receive};
      expect_mismatch(world.run(arguments), "messages of 12 and 16 bytes");
      expect_sums_work(world);
    }
  });
}

// Goal: a rank that is late is no mismatch, however long it takes. Method: it is late by several
// times the patience of those who wait, in turns, with several operations outstanding.
TEST_P(Mismatch, ALateRankIsNone) {
  Contexts contexts = make_ranks(3, GetParam());
  run_ranks(contexts, [](Context&, Communicator& world) {
    for (int turn = 0; turn < 3; ++turn) {
      if (world.rank() == Rank{turn}) std::this_thread::sleep_for(std::chrono::milliseconds(250));
      std::vector<float> first(4, 1.0F), second(4, 2.0F);
      auto one = world.start(Collective::kAllreduce, first.data(), first.data(), Count{4},
                             DType::kFloat32, Reduction::kSum, Rank{0});
      auto two = world.start(Collective::kBroadcast, second.data(), second.data(), Count{4},
                             DType::kFloat32, Reduction::kSum, Rank{turn});
      ASSERT_TRUE(one && two);
      const auto ended = one->wait();
      ASSERT_TRUE(ended) << ended.error().message;
      ASSERT_TRUE(two->wait());
      EXPECT_EQ(first.back(), 3.0F);
    }
  });
}

// Goal: who calls on a communicator that another rank has freed, or has dropped, is told so, on
// every rank that calls, and soon; so is who called before it was freed. The next call elsewhere
// works. Method: rank 1 frees it before the others call, or when they stand still and have said so;
// short and long messages, one operation and several.
TEST_P(Mismatch, AFreedCommunicatorIsNotWaitedFor) {
  Contexts contexts = make_ranks(3, GetParam());
  const auto free_late = [](std::optional<Communicator>& part) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    part.reset();
  };
  run_ranks(
      contexts,
      [&](Context&, Communicator& world) {
        const bool leaves = world.rank() == Rank{1};
        for (const std::size_t n : {4u, 2'000'000u}) {
          for (const bool late : {false, true}) {
            auto part = *world.split(0, 0);
            expect_sums_work(*part);
            if (leaves && !late) free(*part);
            ASSERT_TRUE(world.barrier());
            if (leaves && late) free_late(part);
            for (int call = 0; !leaves && call < 2; ++call) {
              std::vector<float> one(n, 1.0F), two(n, 1.0F);
              auto ahead = part->start(Collective::kBroadcast, one.data(), one.data(), Count{n},
                                       DType::kFloat32, Reduction::kSum, Rank{0});
              ASSERT_TRUE(ahead);
              expect_mismatch(sum(*part, two), "it has freed the communicator");
              expect_mismatch(ahead->wait(), "rank 1 ");
            }
            expect_sums_work(world);
          }
        }
      },
      std::chrono::seconds(40));
}

// Goal: who frees a communicator after its last call there disturbs nobody, though that call has
// not ended and others are late for it.
TEST_P(Mismatch, WhoFreesAfterItsLastCallDisturbsNobody) {
  Contexts contexts = make_ranks(3, GetParam());
  run_ranks(contexts, [](Context&, Communicator& world) {
    for (const bool drops : {false, true}) {
      auto part = *world.split(0, 0);
      std::vector<float> data(4, 1.0F);
      if (world.rank() == Rank{0}) std::this_thread::sleep_for(std::chrono::milliseconds(250));
      auto request = part->start(Collective::kAllreduce, data.data(), data.data(), Count{4},
                                 DType::kFloat32, Reduction::kSum, Rank{0});
      ASSERT_TRUE(request);
      if (world.rank() == Rank{1} && drops) part.reset();
      if (world.rank() == Rank{1} && !drops) free(*part);
      const auto outcome = request->wait();
      ASSERT_TRUE(outcome) << outcome.error().message;
      EXPECT_EQ(data.back(), 3.0F);
    }
  });
}

// Goal: groups that one split made at once have nothing to do with each other: neither what the one
// calls nor that it frees its communicator disturbs the other. Method: both stand still, in unlike
// calls, since one rank of each is late; then again when one group has freed its own.
TEST_P(Mismatch, GroupsOfOneSplitDoNotConcernEachOther) {
  Contexts contexts = make_ranks(4, GetParam());
  run_ranks(contexts, [](Context&, Communicator& world) {
    const bool second = world.rank() >= Rank{2};
    auto part = *world.split(second ? 1 : 0, 0);
    const auto late = [&] {
      if (part->rank() == Rank{1}) std::this_thread::sleep_for(std::chrono::milliseconds(250));
    };
    const auto expect_success = [](const Result<void>& outcome) {
      ASSERT_TRUE(outcome) << outcome.error().message;
    };
    ASSERT_TRUE(world.barrier());
    late();
    std::vector<float> data(4, 1.0F);
    expect_success(second ? part->barrier() : sum(*part, data));
    if (second) free(*part);
    ASSERT_TRUE(world.barrier());
    late();
    if (!second) expect_success(sum(*part, data));
  });
}

// Goal: a rank that gave an operation up and then leaves has not done its part in it: whoever is in
// it fails at once, although another rank, alive, may never join. Method: rank 2 aborts it; rank 0
// calls nothing until rank 1 has failed.
TEST_P(Mismatch, WhoGaveUpAndLeftIsNotWaitedFor) {
  Contexts contexts = make_ranks(3, GetParam());
  std::latch failed(1);
  run_ranks(contexts, [&](Context& context, Communicator& world) {
    expect_sums_work(world);
    std::vector<float> data(8, 1.0F);
    if (world.rank() == Rank{0}) return failed.wait();
    auto request = world.start(Collective::kAllreduce, data.data(), data.data(), Count{8},
                               DType::kFloat32, Reduction::kSum, Rank{0});
    ASSERT_TRUE(request);
    if (world.rank() == Rank{2}) {
      request->abort("enough");
      EXPECT_FALSE(request->wait());
      return context.shutdown();
    }
    const auto outcome = request->wait();
    failed.count_down();
    ASSERT_FALSE(outcome);
    EXPECT_EQ(outcome.error().kind, ErrorKind::kRankFailed) << outcome.error().message;
    EXPECT_EQ(outcome.error().culprit->rank, 2);
  });
}

// Goal: the same for messages between two ranks. Method: rank 1 gives a receive up and leaves; rank
// 0 sends what is too long to be sent before it is received.
TEST_P(Mismatch, WhoGaveAMessageUpAndLeftIsNotWaitedFor) {
  Contexts contexts = make_ranks(2, GetParam());
  std::latch left(1);
  run_ranks(contexts, [&](Context& context, Communicator& world) {
    std::vector<float> data(4'000'000, 1.0F);
    expect_sums_work(world);
    if (world.rank() == Rank{1}) {
      auto request = world.start(
          std::vector{Message::receive(data.data(), Count{data.size()}, DType::kFloat32, Rank{0})});
      ASSERT_TRUE(request);
      request->abort("enough");
      EXPECT_FALSE(request->wait());
      // Before that it may still take the message from the sender, and throw it away.
      context.shutdown();
      return left.count_down();
    }
    left.wait();
    const auto outcome = world.send(data.data(), Count{data.size()}, DType::kFloat32, Rank{1});
    ASSERT_FALSE(outcome);
    EXPECT_EQ(outcome.error().kind, ErrorKind::kRankFailed) << outcome.error().message;
  });
}

INSTANTIATE_TEST_SUITE_P(All, Mismatch,
                         ::testing::Values("inproc", "fault", "shm", "tcp", "device"),
                         [](const auto& parameter) { return parameter.param; });

}  // namespace
}  // namespace farandole::testing
