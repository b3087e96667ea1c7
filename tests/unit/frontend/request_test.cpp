// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "unit/frontend/ranks.hpp"

namespace farandole::testing {
namespace {

constexpr DType kNumber = DType::kInt32;

Result<Request> start_sum(Communicator& comm, std::int32_t& value) {
  return comm.start({.collective = Collective::kAllreduce,
                     .in = &value,
                     .out = &value,
                     .count = Count{1},
                     .dtype = kNumber});
}

// Goal: every function is called once with the outcome, however its registration falls together
// with the end of the operation. Method: many operations, three functions each, two given from
// another thread at the same time.
TEST(OnComplete, EachIsCalledOnce) {
  constexpr int kOperations = 400;
  Contexts contexts = make_ranks(2, "inproc");
  run_ranks(contexts, [](Context&, Communicator& world) {
    std::vector<std::int32_t> values(kOperations, 1);
    std::atomic<int> calls{0}, wrong{0};
    for (std::int32_t& value : values) {
      auto request = start_sum(world, value);
      ASSERT_TRUE(request) << request.error().message;
      const auto count = [&](const Result<void>& outcome) {
        if (!outcome) wrong.fetch_add(1);
        calls.fetch_add(1);
        calls.notify_all();
      };
      std::thread other([&] {
        EXPECT_TRUE(request->on_complete(count));
        EXPECT_TRUE(request->on_complete(count));
      });
      EXPECT_TRUE(request->on_complete(count));
      EXPECT_TRUE(request->wait());
      other.join();
    }
    // wait() may return before the functions were called.
    for (int seen = calls.load(); seen < 3 * kOperations; seen = calls.load()) calls.wait(seen);
    EXPECT_EQ(calls.load(), 3 * kOperations);
    EXPECT_EQ(wrong.load(), 0);
    EXPECT_TRUE(world.barrier());
    EXPECT_EQ(calls.load(), 3 * kOperations);
  });
}

// Goal: of an operation that has ended it is called at once, on this thread; of one that fails with
// the error; nobody has to wait for the operation. No function is an error.
TEST(OnComplete, EndedFailedAndUnwaited) {
  Contexts contexts = make_ranks(2, "shm");
  run_ranks(contexts, [](Context&, Communicator& world) {
    std::int32_t value = 1;
    auto ended = start_sum(world, value);
    ASSERT_TRUE(ended && ended->wait());
    std::thread::id where;
    EXPECT_TRUE(ended->on_complete([&](const Result<void>& outcome) {
      where = outcome ? std::this_thread::get_id() : where;
    }));
    EXPECT_EQ(where, std::this_thread::get_id());
    EXPECT_EQ(ended->on_complete({}).error().kind, ErrorKind::kInvalidArgument);

    auto comm = world.split(0, 0);
    ASSERT_TRUE(comm);
    std::promise<std::string> told;
    auto answer = told.get_future();
    if (world.rank() == Rank{0}) {
      auto failing = start_sum(**comm, value);
      ASSERT_TRUE(failing);
      EXPECT_TRUE(failing->on_complete([&](const Result<void>& outcome) {
        told.set_value(outcome ? "no error" : outcome.error().message);
      }));
      EXPECT_TRUE(world.barrier());
      const std::string message = answer.get();
      EXPECT_NE(message.find("out of paper"), std::string::npos) << message;
    } else {
      EXPECT_TRUE(world.barrier());  // the operation has been started
      ASSERT_TRUE((**comm).abort("out of paper"));
    }

    std::promise<std::string> second;
    auto unwaited = start_sum(world, value);
    ASSERT_TRUE(unwaited);
    EXPECT_TRUE(unwaited->on_complete([&](const Result<void>& outcome) {
      second.set_value(outcome ? "fine" : outcome.error().message);
    }));
    EXPECT_EQ(second.get_future().get(), "fine");
  });
}

// Goal: shutdown() calls what is still waiting, with an error.
TEST(OnComplete, ShutdownTellsAsWell) {
  Contexts contexts = make_ranks(2, "inproc");
  std::int32_t value = 1;
  Communicator world = contexts[0]->world();
  auto request = start_sum(world, value);
  ASSERT_TRUE(request);
  std::promise<bool> told;
  auto answer = told.get_future();
  ASSERT_TRUE(request->on_complete(
      [&](const Result<void>& outcome) { told.set_value(static_cast<bool>(outcome)); }));
  contexts[0]->shutdown();
  EXPECT_FALSE(answer.get());
}

}  // namespace
}  // namespace farandole::testing
