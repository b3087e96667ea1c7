// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "unit/frontend/ranks.hpp"

namespace farandole::testing {
namespace {

class Failure : public ::testing::TestWithParam<std::string> {};

Result<void> sum(Communicator& world, std::vector<float>& data, CallOptions options = {}) {
  return world.allreduce(data.data(), data.data(), Count{data.size()}, DType::kFloat32,
                         Reduction::kSum, options);
}

// Goal: ranks that disagree on size, dtype, reduction, root or operation all get kMismatch, in
// words that name both sides, and the next operation works.
// Method: rank 1 asks for something else in every way; both short and long messages.
TEST_P(Failure, DisagreementRaisesEverywhereAndPoisonsNothing) {
  Contexts contexts = make_ranks(4, GetParam());
  run_ranks(contexts, [](Context&, Communicator& world) {
    const bool odd = world.rank() == Rank{1};
    for (const std::size_t n : {8u, 100'000u}) {
      std::vector<float> data(n * 8, 1.0F);
      const auto call = [&](Collective collective, std::size_t count, DType dtype,
                            Reduction reduction) {
        return world.run(collective, data.data(), data.data(), Count{count}, dtype, reduction,
                         Rank{0}, {.algorithm = "", .name = "weights"});
      };
      const auto all = Collective::kAllreduce;
      const std::vector<Result<void>> outcomes = {
          call(all, odd ? n + 1 : n, DType::kFloat32, Reduction::kSum),
          call(all, n, odd ? DType::kInt32 : DType::kFloat32, Reduction::kSum),
          call(all, n, DType::kFloat32, odd ? Reduction::kMax : Reduction::kSum),
          call(odd ? Collective::kBarrier : all, n, DType::kFloat32, Reduction::kSum),
      };
      for (std::size_t i = 0; i < outcomes.size(); ++i) {
        ASSERT_FALSE(outcomes[i]) << "case " << i << " on rank " << world.rank().value();
        EXPECT_EQ(outcomes[i].error().kind, ErrorKind::kMismatch) << outcomes[i].error().message;
        EXPECT_NE(outcomes[i].error().message.find("rank 1 "), std::string::npos)
            << outcomes[i].error().message;
        EXPECT_NE(outcomes[i].error().message.find("weights"), std::string::npos);
      }
      std::vector<float> good(n, 1.0F);
      const auto after = sum(world, good);
      ASSERT_TRUE(after) << after.error().message;
      EXPECT_EQ(good.back(), 4.0F);
    }
  });
}

// Goal: ranks that run one algorithm with different options, or in a different order of operands,
// are told so before the results go wrong.
TEST_P(Failure, DifferentOptionsRaiseEverywhere) {
  Contexts contexts = make_ranks(4, GetParam());
  run_ranks(contexts, [](Context&, Communicator& world) {
    const bool odd = world.rank() == Rank{1};
    std::vector<float> data(1000, 1.0F);
    const auto refused = [&](const CallOptions& options) {
      const auto outcome = sum(world, data, options);
      ASSERT_FALSE(outcome);
      EXPECT_EQ(outcome.error().kind, ErrorKind::kMismatch) << outcome.error().message;
      EXPECT_NE(outcome.error().message.find("the same algorithm with other options"),
                std::string::npos)
          << outcome.error().message;
    };
    refused({.algorithm = "ring", .deterministic = odd});
    refused({.algorithm = odd ? "hierarchical:layers=4ring" : "hierarchical:layers=2ring/2ring"});
    std::vector<float> good(1000, 1.0F);
    ASSERT_TRUE(sum(world, good, {.algorithm = "hierarchical:layers=2/2"}));
    EXPECT_EQ(good.back(), 4.0F);
  });
}

// Goal: with FARANDOLE_CHECK every disagreement is found before a byte moves, also one that no
// message would show, such as two ranks that both believe to be the root.
TEST_P(Failure, CheckedArguments) {
  setenv("FARANDOLE_CHECK", "1", 1);
  Contexts contexts = make_ranks(3, GetParam());
  unsetenv("FARANDOLE_CHECK");
  run_ranks(contexts, [](Context&, Communicator& world) {
    std::vector<float> data(16, static_cast<float>(world.rank().value()));
    const auto wrong =
        world.broadcast(data.data(), data.data(), Count{16}, DType::kFloat32, world.rank());
    ASSERT_FALSE(wrong);
    EXPECT_EQ(wrong.error().kind, ErrorKind::kMismatch);
    EXPECT_NE(wrong.error().message.find("rank 2: broadcast float32[16] from root 2"),
              std::string::npos)
        << wrong.error().message;
    EXPECT_EQ(data[0], static_cast<float>(world.rank().value()));
    ASSERT_TRUE(sum(world, data));
    EXPECT_EQ(data[0], 3.0F);
  });
}

// Goal: arguments that are wrong on this rank alone are refused here, naming the argument.
TEST_P(Failure, BadArgumentsAreNamed) {
  Contexts contexts = make_ranks(2, GetParam());
  run_ranks(contexts, [](Context&, Communicator& world) {
    std::vector<float> data(8);
    const auto refused = [](const Result<void>& result, const char* word) {
      ASSERT_FALSE(result);
      EXPECT_EQ(result.error().kind, ErrorKind::kInvalidArgument);
      EXPECT_NE(result.error().message.find(word), std::string::npos) << result.error().message;
    };
    refused(world.broadcast(data.data(), data.data(), Count{8}, DType::kFloat32, Rank{2}),
            "'root'");
    refused(world.broadcast(data.data(), data.data(), Count{8}, DType::kFloat32, Rank{-1}),
            "0 to 1");
    refused(world.allreduce(nullptr, data.data(), Count{8}, DType::kFloat32), "'in'");
    refused(world.allreduce(data.data(), nullptr, Count{8}, DType::kFloat32), "'out'");
    refused(world.allreduce(data.data(), data.data() + 1, Count{7}, DType::kFloat32), "'out'");
    refused(world.allreduce(data.data(), data.data(), Count{~std::size_t{0}}, DType::kFloat32),
            "'count'");
    refused(world.allreduce(data.data(), data.data(), Count{8}, DType::kFloat32,
                            Reduction::kBitwiseAnd),
            "bitwise_and");
    refused(sum(world, data, {.algorithm = "teleport"}), "teleport");
    ASSERT_TRUE(sum(world, data));
  });
}

// Goal: a rank that shuts down fails what others still ask of it, with its name; what it had
// finished before stands.
TEST_P(Failure, ShutdownOfOneRank) {
  Contexts contexts = make_ranks(3, GetParam());
  run_ranks(contexts, [](Context& context, Communicator& world) {
    std::vector<float> data(20'000, 1.0F);
    for (int i = 0; i < 20; ++i) {
      const auto outcome = sum(world, data);
      ASSERT_TRUE(outcome) << outcome.error().message;
    }
    if (world.rank() == Rank{2}) {
      context.shutdown();
      const auto late = sum(world, data);
      ASSERT_FALSE(late);
      EXPECT_EQ(late.error().kind, ErrorKind::kInvalidArgument);
      return;
    }
    for (int i = 0; i < 2; ++i) {
      const auto outcome = sum(world, data, {.algorithm = "", .name = "layer1.weight"});
      ASSERT_FALSE(outcome);
      EXPECT_EQ(outcome.error().kind, ErrorKind::kRankFailed);
      ASSERT_TRUE(outcome.error().culprit);
      EXPECT_EQ(outcome.error().culprit->rank, 2);
      EXPECT_NE(outcome.error().message.find("shut down during allreduce 'layer1.weight'"),
                std::string::npos)
          << outcome.error().message;
    }
  });
}

// Goal: an operation that a live rank never joins ends at its deadline and says what it waits for.
TEST_P(Failure, DeadlineEndsTheWait) {
  setenv("FARANDOLE_OPERATION_TIMEOUT", "0.3", 1);
  Contexts contexts = make_ranks(2, GetParam());
  unsetenv("FARANDOLE_OPERATION_TIMEOUT");
  run_ranks(contexts, [](Context&, Communicator& world) {
    std::vector<float> data(8);
    ASSERT_TRUE(sum(world, data));  // both know each other now
    if (world.rank() == Rank{0}) return;
    const auto outcome = sum(world, data, {.algorithm = "ring", .name = "lonely"});
    ASSERT_FALSE(outcome);
    EXPECT_EQ(outcome.error().kind, ErrorKind::kTimedOut);
    EXPECT_NE(outcome.error().message.find("'lonely'"), std::string::npos);
    EXPECT_NE(outcome.error().message.find("from rank 0"), std::string::npos)
        << outcome.error().message;
    EXPECT_FALSE(sum(world, data));  // the communicator is broken
  });
}

// Goal: a dump says what is in flight, also while a rank waits for it and drives its engine.
// Method: rank 1 joins an operation of rank 0 once rank 0's dump names it; afterwards, and after
// shutdown, dumps are empty.
TEST_P(Failure, DumpWhileARankWaits) {
  Contexts contexts = make_ranks(2, GetParam());
  run_ranks(contexts, [&](Context& context, Communicator& world) {
    std::vector<float> data(8, 1.0F);
    if (world.rank() == Rank{1}) {
      while (contexts[0]->dump().find("allreduce 'awaited'") == std::string::npos) {
      }
    }
    ASSERT_TRUE(sum(world, data, {.algorithm = "", .name = "awaited"}));
    EXPECT_EQ(context.dump().find("awaited"), std::string::npos);
    context.shutdown();
    EXPECT_EQ(context.dump().find("awaited"), std::string::npos);
  });
}

// Goal: abort() ends what is in flight, from another thread, without a peer's help.
TEST_P(Failure, AbortEndsEverything) {
  Contexts contexts = make_ranks(2, GetParam());
  run_ranks(contexts, [](Context&, Communicator& world) {
    std::vector<float> data(100'000);
    ASSERT_TRUE(sum(world, data));
    if (world.rank() == Rank{0}) return;
    auto request = world.start(Collective::kAllreduce, data.data(), data.data(), Count{data.size()},
                               DType::kFloat32, Reduction::kSum, Rank{0});
    ASSERT_TRUE(request);
    EXPECT_FALSE(*request->test());
    std::thread other([&] { request->abort("enough"); });
    const auto outcome = request->wait();
    other.join();
    ASSERT_FALSE(outcome);
    EXPECT_EQ(outcome.error().message, "enough");
  });
}

INSTANTIATE_TEST_SUITE_P(All, Failure,
                         ::testing::Values("inproc", "kernel", "fault", "shm", "tcp", "device"),
                         [](const auto& parameter) { return parameter.param; });

}  // namespace
}  // namespace farandole::testing
