// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <future>
#include <string>
#include <vector>

#include "unit/abi/ranks.hpp"

// Goal: the end of an operation reaches a C function, with the caller's pointer and, where it
// failed, with the error; so does the end of a communicator that one member aborts.
namespace farandole::testing {
namespace {

/// What a completion was told, copied while it was valid.
struct Told {
  farandole_status status = -1;
  int failed_rank = -1;
  std::string message;
  bool has_error = false;
};

/// Takes the first call only: a second one throws, which ends the process. It outlives the ranks,
/// since the library's thread may still be in the call when wait() returns.
class Completion {
 public:
  static void call(void* data, farandole_status status, const farandole_error* error) {
    Told told{.status = status, .has_error = error != nullptr};
    if (error != nullptr) {
      EXPECT_EQ(error->struct_size, sizeof(farandole_error));
      EXPECT_EQ(error->status, status);
      told.failed_rank = error->failed_rank;
      told.message = error->message;
    }
    static_cast<Completion*>(data)->promise_.set_value(told);
  }
  Told wait() { return promise_.get_future().get(); }

 private:
  std::promise<Told> promise_;
};

int rank_of(const farandole_communicator* communicator) {
  int rank = -1;
  expect_ok(farandole_communicator_rank(communicator, &rank, nullptr));
  return rank;
}

farandole_arguments barrier() {
  return arguments_of(FARANDOLE_BARRIER, nullptr, nullptr, 0, 0);
}

farandole_request* start_barrier(farandole_communicator* communicator) {
  const farandole_arguments arguments = barrier();
  farandole_request* request = nullptr;
  expect_ok(farandole_start(communicator, &arguments, nullptr, &request));
  return request;
}

farandole_communicator* copy_of(farandole_communicator* world) {
  const std::int64_t color = 0;
  farandole_communicator* made = nullptr;
  expect_ok(farandole_split(world, &color, 0, &made));
  return made;
}

// Method: rank 1 starts its barrier once rank 0 has asked to be told, and has released the request
// where nobody waits; then both ask about what has ended.
TEST(AbiCompletions, AreCalledOnce) {
  std::promise<void> asked;
  Completion completions[2][3];
  on_ranks(2, [&](farandole_communicator* world) {
    if (rank_of(world) == 1) asked.get_future().wait();
    farandole_request* const request = start_barrier(world);
    auto& [first, second, late] = completions[rank_of(world)];
    expect_ok(farandole_on_complete(request, &Completion::call, &first));
    expect_ok(farandole_on_complete(request, &Completion::call, &second));
    farandole_request* waited = nullptr;
    if (rank_of(world) == 0) {
      expect_ok(farandole_request_release(request));
      asked.set_value();
    } else {
      waited = request;
    }
    for (Completion* completion : {&first, &second}) {
      const Told told = completion->wait();
      EXPECT_EQ(told.status, FARANDOLE_OK);
      EXPECT_FALSE(told.has_error);
    }
    if (waited == nullptr) return;
    expect_ok(farandole_on_complete(waited, &Completion::call, &late));
    EXPECT_EQ(late.wait().status, FARANDOLE_OK);
    expect_failure(farandole_on_complete(waited, nullptr, nullptr), FARANDOLE_INVALID_ARGUMENT,
                   "'completion' is null");
    expect_ok(farandole_request_release(waited));
  });
}

// Method: rank 1 never takes part, and ends the communicator; the world works afterwards.
TEST(AbiCompletions, TellWhoAborted) {
  std::promise<void> started;
  Completion completion, late;
  on_ranks(2, [&](farandole_communicator* world) {
    farandole_communicator* const comm = copy_of(world);
    const bool waits = rank_of(world) == 0;
    if (waits) {
      farandole_request* const request = start_barrier(comm);
      expect_ok(farandole_on_complete(request, &Completion::call, &completion));
      started.set_value();
      const Told told = completion.wait();
      EXPECT_EQ(told.status, FARANDOLE_ABORTED);
      EXPECT_EQ(told.failed_rank, 1);
      EXPECT_NE(told.message.find("the plugin stops"), std::string::npos) << told.message;
      expect_failure(farandole_wait(request), FARANDOLE_ABORTED, "the plugin stops");
      EXPECT_EQ(farandole_last_error()->failed_rank, 1);
      expect_failure(farandole_wait(nullptr), FARANDOLE_INVALID_ARGUMENT, "'request' is null");
      expect_ok(farandole_on_complete(request, &Completion::call, &late));
      EXPECT_EQ(late.wait().status, FARANDOLE_ABORTED);
      EXPECT_EQ(last_message(), "farandole_wait: argument 'request' is null, allowed is a request.")
          << "a callback changed it";
      expect_ok(farandole_request_release(request));
    } else {
      started.get_future().wait();
      expect_ok(farandole_abort_communicator(comm, "the plugin stops"));
      expect_ok(farandole_abort_communicator(comm, nullptr));
    }
    const farandole_arguments arguments = barrier();
    expect_failure(farandole_run(comm, &arguments, nullptr), FARANDOLE_ABORTED, "rank 1");
    expect_ok(farandole_run(world, &arguments, nullptr));
    expect_ok(farandole_communicator_release(comm));
  });
  expect_failure(farandole_abort_communicator(nullptr, ""), FARANDOLE_INVALID_ARGUMENT,
                 "'communicator' is null");
}

// Method: rank 1 of three is in no list and calls nothing.
TEST(AbiCommunicators, AreMadeByTheirMembersAlone) {
  on_ranks(3, [](farandole_communicator* world) {
    if (rank_of(world) == 1) return;
    const std::int32_t ranks[] = {2, 0};
    farandole_communicator* made = nullptr;
    expect_ok(farandole_create_group(world, ranks, 2, 7, 60'000, &made));
    ASSERT_NE(made, nullptr);
    EXPECT_EQ(rank_of(made), rank_of(world) == 2 ? 0 : 1);
    const farandole_arguments arguments = barrier();
    expect_ok(farandole_run(made, &arguments, nullptr));
    expect_ok(farandole_communicator_release(made));

    const auto refuse = [&](const std::int32_t* list, std::size_t count, int timeout,
                            const char* words) {
      made = world;
      expect_failure(farandole_create_group(world, list, count, 0, timeout, &made),
                     FARANDOLE_INVALID_ARGUMENT, words);
      EXPECT_EQ(made, nullptr);
    };
    refuse(nullptr, 2, 0, "'ranks' is null");
    refuse(ranks, 4, 0, "'rank_count' is 4");
    refuse(ranks, 2, -1, "'timeout_ms' is -1");
    const std::int32_t others[] = {1};
    refuse(others, 1, 0, "'ranks'");
    const std::int32_t with_absent[] = {0, 1};
    if (rank_of(world) == 0) {
      expect_failure(farandole_create_group(world, with_absent, 2, 0, 1, &made),
                     FARANDOLE_TIMED_OUT, "rank 1");
    }
  });
}

}  // namespace
}  // namespace farandole::testing
