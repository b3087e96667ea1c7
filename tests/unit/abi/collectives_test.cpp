// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "abi/constants.hpp"
#include "unit/abi/ranks.hpp"

// Goal: what goes through the C interface is what the C++ interface does: every collective, dtype,
// reduction and option, to the end or started, by equal chunks or by counts.
// Method: three ranks as threads. Collectives are compared with their definitions, on integers that
// are unique to (rank, index); dtypes, reductions and factors with Communicator::run(), bit for
// bit. tests/python/test_c_interface.py compares with NumPy.
namespace farandole::testing {
namespace {

constexpr int kSize = 3;
constexpr std::size_t kCount = 5;
using Values = std::vector<std::int64_t>;

std::int64_t value(int rank, std::size_t index) {
  return 1000 * (rank + 1) + static_cast<std::int64_t>(index);
}

Values input(int rank, std::size_t count) {
  Values values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = value(rank, i);
  return values;
}

int rank_of(const farandole_communicator* communicator) {
  int rank = -1;
  expect_ok(farandole_communicator_rank(communicator, &rank, nullptr));
  return rank;
}

/// Runs the call to its end, by farandole_run() or by farandole_start() and waiting in each way.
void finish(farandole_communicator* world, const farandole_arguments& arguments, int way) {
  if (way == 0) return expect_ok(farandole_run(world, &arguments, nullptr));
  farandole_options options = no_options();
  options.name = "started";
  options.caller_waits = way == 2 ? 1 : 0;
  farandole_request* request = nullptr;
  expect_ok(farandole_start(world, &arguments, &options, &request));
  int done = 0;
  if (way == 1) expect_ok(farandole_wait(request));
  while (way == 2 && done == 0) expect_ok(farandole_wait_for(request, 1000, &done));
  done = 0;
  while (way == 3 && done == 0) expect_ok(farandole_test(request, &done));
  expect_ok(farandole_test(request, &done));
  EXPECT_EQ(done, 1);
  expect_ok(farandole_request_release(request));
}

/// What rank `rank` has in `out` afterwards. Chunks are kCount long; `root` is 1.
Values expected(farandole_collective collective, int rank) {
  Values out;
  const auto append = [&](int from, int chunk) {
    for (std::size_t i = 0; i < kCount; ++i) {
      out.push_back(value(from, static_cast<std::size_t>(chunk) * kCount + i));
    }
  };
  const auto sum = [&](int chunk) {
    for (std::size_t i = 0; i < kCount; ++i) {
      std::int64_t total = 0;
      for (int from = 0; from < kSize; ++from) {
        total += value(from, static_cast<std::size_t>(chunk) * kCount + i);
      }
      out.push_back(total);
    }
  };
  const bool root = rank == 1;
  if (collective == FARANDOLE_ALLREDUCE || (collective == FARANDOLE_REDUCE && root)) sum(0);
  if (collective == FARANDOLE_REDUCESCATTER) sum(rank);
  if (collective == FARANDOLE_BROADCAST) append(1, 0);
  if (collective == FARANDOLE_SCATTER) append(1, rank);
  for (int from = 0; from < kSize; ++from) {
    if (collective == FARANDOLE_ALLGATHER || (collective == FARANDOLE_GATHER && root)) {
      append(from, 0);
    }
    if (collective == FARANDOLE_ALLTOALL) append(from, rank);
  }
  return out;
}

TEST(AbiCollectives, MatchTheirDefinitions) {
  on_ranks(kSize, [](farandole_communicator* world) {
    const int rank = rank_of(world);
    const Values in = input(rank, kCount * kSize);
    for (int collective = FARANDOLE_ALLREDUCE; collective <= FARANDOLE_BARRIER; ++collective) {
      for (int way = 0; way < 4; ++way) {
        SCOPED_TRACE(std::string(name(static_cast<Collective>(collective))) + " way " +
                     std::to_string(way));
        Values out(kCount * kSize, -1);
        farandole_arguments arguments =
            arguments_of(collective, in.data(), out.data(), kCount, FARANDOLE_INT64);
        arguments.root = 1;
        finish(world, arguments, way);
        const Values want = expected(collective, rank);
        if (collective == FARANDOLE_REDUCE && rank != 1) continue;  // may overwrite `out`
        out.resize(want.size());
        EXPECT_EQ(out, want);
      }
    }
  });
}

TEST(AbiCollectives, CountsByRank) {
  on_ranks(kSize, [](farandole_communicator* world) {
    const int rank = rank_of(world);
    const std::vector<std::size_t> counts = {2, 0, 3};
    const Values in = input(rank, counts[static_cast<std::size_t>(rank)]);
    Values out(5, -1);
    farandole_arguments arguments =
        arguments_of(FARANDOLE_GATHER, in.data(), out.data(), in.size(), FARANDOLE_INT64);
    arguments.by_rank = 1;
    arguments.root = 2;
    if (rank == 2) {
      arguments.out_counts = counts.data();
      arguments.out_counts_length = counts.size();
    }
    finish(world, arguments, 0);
    if (rank == 2) {
      EXPECT_EQ(out, (Values{value(0, 0), value(0, 1), value(2, 0), value(2, 1), value(2, 2)}));
    }
    // alltoall: rank r sends d + 1 elements to rank d, so it gets r + 1 from everybody.
    const std::vector<std::size_t> sent = {1, 2, 3};
    const auto mine = static_cast<std::size_t>(rank) + 1;
    const std::vector<std::size_t> received(kSize, mine);
    const Values all = input(rank, 6);
    out.assign(mine * kSize, -1);
    arguments = arguments_of(FARANDOLE_ALLTOALL, all.data(), out.data(), 0, FARANDOLE_INT64);
    arguments.by_rank = 1;
    arguments.in_counts = sent.data();
    arguments.in_counts_length = sent.size();
    arguments.out_counts = received.data();
    arguments.out_counts_length = received.size();
    finish(world, arguments, 1);
    Values want;
    for (int from = 0; from < kSize; ++from) {
      for (std::size_t i = 0; i < mine; ++i) want.push_back(value(from, mine * (mine - 1) / 2 + i));
    }
    EXPECT_EQ(out, want);
  });
}

/// The outcome of both interfaces for the same input.
void compare(farandole_communicator* world, DType dtype, Reduction reduction, double factor) {
  constexpr std::size_t kElements = 32;
  const std::size_t bytes = kElements * size_of(dtype).value();
  std::vector<std::uint8_t> in(bytes), ours(bytes), theirs(bytes);
  const auto own = static_cast<std::size_t>(rank_of(world));
  for (std::size_t i = 0; i < bytes; ++i) in[i] = static_cast<std::uint8_t>((i * 7 + own) % 2);
  Communicator same = world->value;
  const Result<void> done =
      same.allreduce(in.data(), theirs.data(), Count{kElements}, dtype, reduction,
                     {.factor = reduction == Reduction::kPremultipliedSum ? factor : 1.0});
  farandole_arguments arguments = arguments_of(FARANDOLE_ALLREDUCE, in.data(), ours.data(),
                                               kElements, static_cast<farandole_dtype>(dtype));
  arguments.reduction = static_cast<farandole_reduction>(reduction);
  arguments.factor = factor;
  const farandole_status status = farandole_run(world, &arguments, nullptr);
  EXPECT_EQ(status, done ? FARANDOLE_OK : abi::status_of(done.error().kind));
  if (!done) {
    EXPECT_EQ(last_message(), done.error().message);
  }
  EXPECT_EQ(ours, theirs);
}

TEST(AbiCollectives, EveryDTypeAndReduction) {
  on_ranks(2, [](farandole_communicator* world) {
    for (int dtype = 0; dtype < kDTypeCount; ++dtype) {
      for (int reduction = 0; reduction < kReductionCount; ++reduction) {
        SCOPED_TRACE(std::to_string(dtype) + " " + std::to_string(reduction));
        compare(world, static_cast<DType>(dtype), static_cast<Reduction>(reduction), 3.0);
      }
    }
  });
}

// Goal: the options arrive. Method: a name is in the error of a mismatch, an unknown algorithm is
// refused by name, `deterministic` on one rank only is a mismatch.
TEST(AbiCollectives, Options) {
  on_ranks(2, [](farandole_communicator* world) {
    const bool odd = rank_of(world) == 1;
    float data[4] = {1, 2, 3, 4};
    const farandole_arguments arguments =
        arguments_of(FARANDOLE_ALLREDUCE, data, data, 4, FARANDOLE_FLOAT32);
    farandole_options options = no_options();
    options.algorithm = "rung";
    expect_failure(farandole_run(world, &arguments, &options), FARANDOLE_INVALID_ARGUMENT, "rung");
    options = no_options();
    options.name = "layer3.weight";
    options.algorithm = "ring";
    options.deterministic = odd ? 1 : 0;
    expect_failure(farandole_run(world, &arguments, &options), FARANDOLE_MISMATCH, "layer3.weight");
    options.deterministic = 1;
    options.size_shift = 16;
    expect_ok(farandole_run(world, &arguments, &options));
  });
}

// Goal: messages go where they are sent, also to this rank itself. Method: a ring.
TEST(AbiMessages, RingAndSelf) {
  on_ranks(kSize, [](farandole_communicator* world) {
    const int rank = rank_of(world);
    std::int32_t mine = rank, left = -1, self = -1;
    const farandole_message messages[] = {
        message_of(FARANDOLE_SEND, &mine, 1, FARANDOLE_INT32, (rank + 1) % kSize),
        message_of(FARANDOLE_RECEIVE, &left, 1, FARANDOLE_INT32, (rank + kSize - 1) % kSize),
        message_of(FARANDOLE_SEND, &mine, 1, FARANDOLE_INT32, rank),
        message_of(FARANDOLE_RECEIVE, &self, 1, FARANDOLE_INT32, rank),
    };
    expect_ok(farandole_run_messages(world, messages, 4, nullptr));
    EXPECT_EQ(left, (rank + kSize - 1) % kSize);
    EXPECT_EQ(self, rank);
    left = -1;
    farandole_request* request = nullptr;
    const farandole_options options = no_options();
    expect_ok(farandole_start_messages(world, messages, 2, &options, &request));
    expect_ok(farandole_wait(request));
    EXPECT_EQ(left, (rank + kSize - 1) % kSize);
    expect_ok(farandole_request_release(request));
    expect_ok(farandole_run_messages(world, nullptr, 0, nullptr));
  });
}

// Goal: a caller that was compiled with a larger struct is served as long as it uses no field that
// this library does not have; messages are as far apart as the caller says.
TEST(AbiStructs, OfANewerCaller) {
  struct NewerMessage {
    farandole_message known;
    std::uint64_t more;
  };
  on_ranks(2, [](farandole_communicator* world) {
    const int rank = rank_of(world);
    std::int32_t mine = rank, other = -1;
    NewerMessage messages[] = {
        {message_of(FARANDOLE_SEND, &mine, 1, FARANDOLE_INT32, 1 - rank), 0},
        {message_of(FARANDOLE_RECEIVE, &other, 1, FARANDOLE_INT32, 1 - rank), 0},
    };
    for (NewerMessage& message : messages) message.known.struct_size = sizeof(NewerMessage);
    expect_ok(farandole_run_messages(world, &messages[0].known, 2, nullptr));
    EXPECT_EQ(other, 1 - rank);
    messages[1].more = 1;
    expect_failure(farandole_run_messages(world, &messages[0].known, 2, nullptr),
                   FARANDOLE_UNSUPPORTED, "'messages[1]' sets a field");
  });
}

}  // namespace
}  // namespace farandole::testing
