// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "abi/handles.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "unit/abi/ranks.hpp"

// Goal: handles are made, used and released in any sensible order, and nothing leaks (the build
// with AddressSanitizer notices); communicators have the members that were asked for.
namespace farandole::testing {
namespace {

std::vector<int> members_of(const farandole_communicator* communicator) {
  int size = 0;
  expect_ok(farandole_communicator_rank(communicator, nullptr, &size));
  std::vector<int> ranks(static_cast<std::size_t>(size));
  expect_ok(farandole_world_ranks(communicator, ranks.data(), ranks.size()));
  return ranks;
}

TEST(AbiCommunicators, AreMadeOfWhoWasAskedFor) {
  on_ranks(4, [](farandole_communicator* world) {
    int rank = -1, size = 0;
    expect_ok(farandole_communicator_rank(world, &rank, &size));
    EXPECT_EQ(size, 4);
    farandole_communicator* made = nullptr;
    const std::int64_t color = rank % 2;
    expect_ok(farandole_split(world, &color, -rank, &made));
    EXPECT_EQ(members_of(made), (rank % 2 == 0 ? std::vector{2, 0} : std::vector{3, 1}));
    expect_ok(farandole_communicator_release(made));

    expect_ok(farandole_split(world, rank == 0 ? nullptr : &color, 0, &made));
    EXPECT_EQ(made == nullptr, rank == 0);
    expect_ok(farandole_communicator_release(made));

    const std::int32_t list[] = {3, 1};
    expect_ok(farandole_group(world, list, rank % 2 == 1 ? 2 : 0, &made));
    ASSERT_EQ(made == nullptr, rank % 2 == 0);
    if (made != nullptr) {
      EXPECT_EQ(members_of(made), (std::vector{3, 1}));
    }
    expect_ok(farandole_communicator_release(made));

    expect_ok(farandole_node(world, &made));
    EXPECT_EQ(members_of(made), (std::vector{0, 1, 2, 3}));
    expect_ok(farandole_communicator_release(made));
    expect_ok(farandole_across(world, &made));
    EXPECT_EQ(members_of(made), (std::vector{rank}));
    expect_ok(farandole_communicator_release(made));
  });
}

// Goal: a process without a job is a job of one rank, and everything that was made there may be
// released after it has left; communicators say then that they are closed.
TEST(AbiContexts, FromTheEnvironmentAndBack) {
  farandole_context* context = nullptr;
  expect_ok(farandole_init(&context));
  farandole_ranks ranks{};
  ranks.struct_size = sizeof(ranks);
  ranks.rank = ranks.local_rank = ranks.cross_rank = -1;
  expect_ok(farandole_get_ranks(context, &ranks));
  EXPECT_EQ(ranks.rank + ranks.local_rank + ranks.cross_rank, 0);
  EXPECT_EQ(ranks.size + ranks.local_size + ranks.cross_size, 3);

  farandole_communicator* world = nullptr;
  expect_ok(farandole_world(context, &world));
  farandole_memory* memory = nullptr;
  void* data = nullptr;
  expect_ok(farandole_allocate(context, 4 * sizeof(float), &memory, &data));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % 64, 0U);
  auto* const values = static_cast<float*>(data);
  values[0] = 1.5F;
  const farandole_arguments sum =
      arguments_of(FARANDOLE_ALLREDUCE, data, data, 1, FARANDOLE_FLOAT32);
  farandole_request* request = nullptr;
  expect_ok(farandole_start(world, &sum, nullptr, &request));
  expect_ok(farandole_wait(request));
  EXPECT_EQ(values[0], 1.5F);

  expect_ok(farandole_finalize(context));
  expect_failure(farandole_run(world, &sum, nullptr), FARANDOLE_INVALID_ARGUMENT, "shut down");
  expect_ok(farandole_wait(request));
  values[0] = 2.5F;  // still the caller's
  expect_ok(farandole_request_release(request));
  expect_ok(farandole_memory_release(memory));
  expect_ok(farandole_communicator_release(world));
}

TEST(AbiContexts, NullIsReleasedLikeFree) {
  expect_ok(farandole_finalize(nullptr));
  expect_ok(farandole_communicator_release(nullptr));
  expect_ok(farandole_request_release(nullptr));
  expect_ok(farandole_memory_release(nullptr));
}

// Goal: who failed arrives as numbers and text, on the thread that asked and on no other.
// Method: rank 1 leaves while rank 0 waits for it.
TEST(AbiErrors, NameTheFailedRank) {
  Contexts contexts = make_ranks(2, "inproc");
  run_ranks(contexts, [](Context& context, Communicator& value) {
    farandole_communicator world{.value = value};
    if (context.rank().value() == 1) return context.shutdown();
    farandole_arguments barrier = arguments_of(FARANDOLE_BARRIER, nullptr, nullptr, 0, 0);
    farandole_options options = no_options();
    options.name = "the end";
    farandole_request* request = nullptr;
    const farandole_status started = farandole_start(&world, &barrier, &options, &request);
    const farandole_status ended = started == FARANDOLE_OK ? farandole_wait(request) : started;
    expect_failure(ended, FARANDOLE_RANK_FAILED, "rank 1");
    const farandole_error* const error = farandole_last_error();
    EXPECT_EQ(error->failed_rank, 1);
    EXPECT_EQ(error->struct_size, sizeof(farandole_error));
    std::thread([] { EXPECT_EQ(farandole_last_error()->status, FARANDOLE_OK); }).join();
    int done = 0;
    if (request != nullptr) {
      expect_failure(farandole_test(request, &done), FARANDOLE_RANK_FAILED, "rank 1");
    }
    expect_ok(farandole_request_release(request));
    EXPECT_EQ(error->failed_rank, 1) << "a call that succeeds changes it";
    expect_failure(farandole_run(nullptr, &barrier, nullptr), FARANDOLE_INVALID_ARGUMENT,
                   "'communicator' is null");
    EXPECT_EQ(farandole_last_error()->failed_rank, -1);
  });
}

// Goal: abort ends what waits, with the reason given. Method: rank 1 never takes part.
TEST(AbiErrors, AbortEndsAWait) {
  on_ranks(2, [](farandole_communicator* world) {
    int rank = -1;
    expect_ok(farandole_communicator_rank(world, &rank, nullptr));
    if (rank == 1) return;
    const farandole_arguments barrier = arguments_of(FARANDOLE_BARRIER, nullptr, nullptr, 0, 0);
    farandole_request* request = nullptr;
    expect_ok(farandole_start(world, &barrier, nullptr, &request));
    int done = 1;
    expect_ok(farandole_wait_for(request, 0, &done));
    EXPECT_EQ(done, 0);
    expect_ok(farandole_abort(request, "the plugin was told to stop"));
    expect_failure(farandole_wait(request), FARANDOLE_INTERNAL, "the plugin was told to stop");
    expect_ok(farandole_request_release(request));
  });
}

}  // namespace
}  // namespace farandole::testing
