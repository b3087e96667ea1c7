// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <dirent.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "unit/frontend/ranks.hpp"

namespace farandole::testing {
namespace {

constexpr DType kInt = DType::kInt32;
constexpr int kMany = 200;

std::int32_t sum(Communicator& comm, std::int32_t value) {
  const auto outcome = comm.allreduce(&value, &value, Count{1}, kInt);
  EXPECT_TRUE(outcome) << outcome.error().message;
  return value;
}

std::vector<int> members(const Communicator& comm) {
  std::vector<int> ranks;
  for (const Rank rank : comm.world_ranks()) ranks.push_back(rank.value());
  return ranks;
}

class Split : public ::testing::TestWithParam<std::string> {};

// Goal: colors make groups, keys order them, no color leaves out; collectives and messages run in
// the new ranks.
TEST_P(Split, ColorsAndKeys) {
  Contexts contexts = make_ranks(5, GetParam());
  run_ranks(contexts, [](Context&, Communicator& world) {
    const int rank = world.rank().value();
    const auto color = rank == 2 ? std::nullopt : std::optional<std::int64_t>(rank % 2);
    auto made = world.split(color, -rank);  // backwards
    ASSERT_TRUE(made) << made.error().message;
    ASSERT_EQ(made->has_value(), rank != 2);
    if (rank != 2) {
      Communicator& part = **made;
      EXPECT_EQ(members(part), rank % 2 == 0 ? (std::vector{4, 0}) : (std::vector{3, 1}));
      EXPECT_EQ(part.world_ranks()[std::size_t(part.rank().value())], world.rank());
      EXPECT_EQ(sum(part, rank), 4);
      std::array<std::int32_t, 2> all{};
      ASSERT_TRUE(part.allgather(&rank, all.data(), Count{1}, kInt));
      EXPECT_EQ(all[0], part.world_ranks()[0].value());
      std::int32_t from = -1;
      const Rank other{1 - part.rank().value()};
      ASSERT_TRUE(part.batch(std::array{Message::send(&rank, Count{1}, kInt, other),
                                        Message::receive(&from, Count{1}, kInt, other)}));
      EXPECT_EQ(from, part.world_ranks()[std::size_t(other.value())].value());
    }
    EXPECT_EQ(sum(world, rank), 10);
  });
}

// Goal: a list of ranks becomes a communicator in its order; bad lists are refused, lists that
// differ are noticed.
TEST_P(Split, Lists) {
  Contexts contexts = make_ranks(4, GetParam());
  run_ranks(contexts, [](Context&, Communicator& world) {
    const std::array list = {Rank{3}, Rank{0}, Rank{1}};
    auto made = world.group(list);
    ASSERT_TRUE(made) << made.error().message;
    ASSERT_EQ(made->has_value(), world.rank() != Rank{2});
    if (*made) {
      EXPECT_EQ(members(**made), (std::vector{3, 0, 1}));
      EXPECT_EQ(sum(**made, 1), 3);
    }
    for (const auto& bad : {std::array{Rank{0}, Rank{0}}, std::array{Rank{0}, Rank{4}}}) {
      const auto refused = world.group(bad);
      ASSERT_FALSE(refused);
      EXPECT_NE(refused.error().message.find("'ranks'"), std::string::npos);
    }
    const std::array one = {Rank{0}, Rank{1}}, other = {Rank{1}, Rank{0}};
    const auto differ = world.group(world.rank() == Rank{1} ? other : one);
    EXPECT_EQ(static_cast<bool>(differ), world.rank().value() > 1);
    if (!differ) {
      EXPECT_EQ(differ.error().kind, ErrorKind::kMismatch);
    }
    EXPECT_EQ(sum(world, 1), 4);
  });
}

// Goal: operations on different communicators overlap, from two threads and with nested splits,
// also when splits themselves race.
TEST_P(Split, ThreadsAndNests) {
  Contexts contexts = make_ranks(4, GetParam());
  run_ranks(contexts, [](Context&, Communicator& world) {
    const int rank = world.rank().value();
    auto rows = world.split(rank / 2, 0), columns = world.split(rank % 2, 0);
    ASSERT_TRUE(rows && columns);
    const auto work = [&](Communicator comm, std::int32_t wanted) {
      for (int round = 0; round < 20; ++round) {
        EXPECT_EQ(sum(comm, rank), wanted);
        auto nested = comm.split(0, -comm.rank().value());
        ASSERT_TRUE(nested) << nested.error().message;
        auto again = (*nested)->split((*nested)->rank().value(), 0);
        ASSERT_TRUE(again) << again.error().message;
        EXPECT_EQ(sum(**nested, rank), wanted);
        EXPECT_EQ(sum(**again, rank), rank);
      }
    };
    std::thread other(work, **columns, rank % 2 == 0 ? 2 : 4);
    work(**rows, rank / 2 == 0 ? 1 : 5);
    other.join();
    EXPECT_EQ(sum(world, 1), 4);
  });
}

std::size_t entries(const char* folder) {
  std::size_t count = 0;
  DIR* open = opendir(folder);
  while (readdir(open) != nullptr) ++count;
  closedir(open);
  return count;
}

/// The number of descriptors once no more come: ranks dial each other's control threads in the
/// background, and may do so long after their first collective.
std::size_t settled_descriptors() {
  constexpr auto kQuiet = std::chrono::milliseconds(500);
  std::size_t count = entries("/proc/self/fd");
  auto since = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - since < kQuiet) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const std::size_t now = entries("/proc/self/fd");
    if (now != count) since = std::chrono::steady_clock::now();
    count = now;
  }
  return count;
}

// Goal: communicators come and go without a trace: ids rise, no plan, thread or descriptor stays.
TEST_P(Split, ManyLeaveNothingBehind) {
  Contexts contexts = make_ranks(3, GetParam());
  std::size_t descriptors = 0, threads = 0;
  run_ranks(contexts, [&](Context& context, Communicator& world) {
    const int rank = world.rank().value();
    for (int round = 0; round < kMany; ++round) {
      if (round == 10) {
        ASSERT_TRUE(world.barrier());
        if (rank == 0) {
          descriptors = settled_descriptors();
          threads = entries("/proc/self/task");
        }
        ASSERT_TRUE(world.barrier());
      }
      auto made = world.split(0, 0);
      ASSERT_TRUE(made) << made.error().message;
      ASSERT_EQ(sum(**made, rank), 3);
      if (round % 2 == 0) {
        ASSERT_TRUE((*made)->free());
      }
    }
    ASSERT_TRUE(world.barrier());
    if (rank == 0) {
      EXPECT_EQ(entries("/proc/self/fd"), descriptors);
      EXPECT_EQ(entries("/proc/self/task"), threads);
    }
    ASSERT_TRUE(world.barrier());
    EXPECT_GE(context.statistics().operations, 3u * kMany);
    EXPECT_LE(context.statistics().plans.size(), 8u);
  });
}

// Goal: a freed communicator refuses calls, lets what is in flight end, and cannot be the world.
TEST_P(Split, Free) {
  Contexts contexts = make_ranks(2, GetParam());
  run_ranks(contexts, [](Context&, Communicator& world) {
    auto made = world.split(0, 0);
    ASSERT_TRUE(made);
    std::vector<std::int32_t> data(100'000, 1);
    auto request = (*made)->start(Collective::kAllreduce, data.data(), data.data(),
                                  Count{data.size()}, kInt, Reduction::kSum, Rank{0});
    ASSERT_TRUE(request);
    ASSERT_TRUE((*made)->free());
    ASSERT_TRUE((*made)->free());
    const auto late = (*made)->barrier();
    ASSERT_FALSE(late);
    EXPECT_NE(late.error().message.find("the communicator was freed"), std::string::npos);
    EXPECT_FALSE((*made)->split(0, 0));
    EXPECT_FALSE((*made)->send(data.data(), Count{1}, kInt, Rank{0}));
    ASSERT_TRUE(request->wait());
    EXPECT_EQ(data.back(), 2);
    EXPECT_FALSE(world.free());
  });
}

// Goal: hosts are what the members say; ranks across have one position on their hosts.
TEST_P(Split, NodeAndAcross) {
  Contexts contexts = make_ranks(3, GetParam());
  run_ranks(contexts, [](Context&, Communicator& world) {
    auto node = world.node();
    ASSERT_TRUE(node);
    auto across = world.across();
    ASSERT_TRUE(across);
    EXPECT_EQ(members(*node), (std::vector{0, 1, 2}));
    EXPECT_EQ(members(*across), (std::vector{world.rank().value()}));
  });
}

// Goal: a rank that is gone breaks the communicators that contain it, and only those.
TEST_P(Split, OnlyCommunicatorsOfTheDeadBreak) {
  Contexts contexts = make_ranks(4, GetParam());
  std::atomic<bool> left{false};
  run_ranks(contexts, [&](Context& context, Communicator& world) {
    const int rank = world.rank().value();
    auto pair = world.split(rank / 2, 0);
    ASSERT_TRUE(pair);
    EXPECT_EQ(sum(**pair, 1), 2);
    if (rank == 3) {
      context.shutdown();
      left = true;
      return;
    }
    while (!left) std::this_thread::yield();
    const auto with_dead = world.barrier({.name = "all"});
    ASSERT_FALSE(with_dead);
    EXPECT_EQ(with_dead.error().kind, ErrorKind::kRankFailed) << with_dead.error().message;
    const auto outcome = (*pair)->barrier();
    EXPECT_EQ(static_cast<bool>(outcome), rank < 2);
    if (!outcome) {
      EXPECT_EQ(outcome.error().culprit->rank, 3);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(All, Split, ::testing::Values("inproc", "fault", "shm", "tcp"),
                         [](const auto& parameter) { return parameter.param; });

}  // namespace
}  // namespace farandole::testing
