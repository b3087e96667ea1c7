// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
// Goal: each file of FARANDOLE_SCHEDULE runs the calls that it is for, unless they name another
// algorithm: those of its collective, its number of ranks and its root, without a fixed order. All
// others run as they would without it.
// Method: two files, whose schedules the statistics name; every result is looked at.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "unit/frontend/ranks.hpp"

namespace farandole::testing {
namespace {

constexpr const char* kHanded =
    "farandole schedule 1\ncollective broadcast\nalgorithm handed\nranks 2\nroot 1\nchunks 1\n"
    "scratch 0\nlanes 1\nround\n  when 1 <= r < 2: send in[0] to 1 - r\n"
    "  when 1 <= r < 2: then copy out[0] = in[0]\n  when 0 <= r < 1: receive out[0] from 1 - r\n"
    "end\n";
constexpr const char* kSwapped =
    "farandole schedule 1\ncollective allreduce\nalgorithm swapped\nranks 2\nroot 0\nchunks 1\n"
    "scratch 1\nlanes 1\nround\n  send in[0] to 1 - r\n  receive scratch[0] from 1 - r\nend\n"
    "round\n  when 0 <= r < 1: reduce out[0] = in[0] + scratch[0]\n"
    "  when 1 <= r < 2: reduce out[0] = scratch[0] + in[0]\nend\n";

/// Two files, named by FARANDOLE_SCHEDULE while this lives.
class ScheduleFiles {
 public:
  ScheduleFiles() {
    std::ofstream(first_) << kHanded;
    std::ofstream(second_) << kSwapped;
    setenv("FARANDOLE_SCHEDULE", (first_ + ":" + second_).c_str(), 1);
  }
  ScheduleFiles(const ScheduleFiles&) = delete;
  ScheduleFiles& operator=(const ScheduleFiles&) = delete;
  ~ScheduleFiles() {
    unsetenv("FARANDOLE_SCHEDULE");
    std::filesystem::remove(first_);
    std::filesystem::remove(second_);
  }

 private:
  const std::string first_ = ::testing::TempDir() + "handed." + std::to_string(getpid());
  const std::string second_ = ::testing::TempDir() + "swapped." + std::to_string(getpid());
};

std::uint64_t calls_of(Context& context, const std::string& algorithm) {
  std::uint64_t calls = 0;
  for (const auto& [label, its] : context.statistics().plans) {
    if (label.find(algorithm) != std::string::npos) calls += its.calls;
  }
  return calls;
}

void expect_broadcast(Communicator& world, int root, const CallOptions& options = {}) {
  std::vector<int> data(100, world.rank().value());
  const auto done =
      world.broadcast(data.data(), data.data(), Count{100}, DType::kInt32, Rank{root}, options);
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(data, std::vector<int>(100, root));
}

void expect_sum(Communicator& world, const CallOptions& options = {}) {
  std::vector<int> data(100, 1 + world.rank().value());
  const auto done = world.allreduce(data.data(), data.data(), Count{100}, DType::kInt32,
                                    Reduction::kSum, options);
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(data, std::vector<int>(100, world.size() == 2 ? 3 : 6));
}

class FromFiles : public ::testing::TestWithParam<std::string> {};

TEST_P(FromFiles, RunTheCallsThatTheyAreFor) {
  const ScheduleFiles files;
  Contexts contexts = make_ranks(2, GetParam());
  run_ranks(contexts, [](Context& context, Communicator& world) {
    for (int turn = 1; turn <= 2; ++turn) {
      expect_broadcast(world, 1);
      EXPECT_EQ(calls_of(context, "handed"), turn);
      expect_sum(world);
      EXPECT_EQ(calls_of(context, "swapped"), turn);
    }
    expect_broadcast(world, 0);
    expect_broadcast(world, 1, {.algorithm = "direct"});
    expect_sum(world, {.algorithm = "ring"});
    expect_sum(world, {.deterministic = true});
    EXPECT_EQ(calls_of(context, "handed"), 2u);
    EXPECT_EQ(calls_of(context, "swapped"), 2u);
  });
}

TEST(ScheduleFilesOnce, OfAnotherNumberOfRanksRunNothing) {
  const ScheduleFiles files;
  Contexts contexts = make_ranks(3, "inproc");
  run_ranks(contexts, [](Context& context, Communicator& world) {
    expect_broadcast(world, 1);
    expect_sum(world);
    EXPECT_EQ(calls_of(context, "handed") + calls_of(context, "swapped"), 0u);
  });
}

TEST(ScheduleFilesOnce, GoBeforeTheSettingThatNamesAnAlgorithm) {
  const ScheduleFiles files;
  setenv("FARANDOLE_ALGORITHM", "ring", 1);
  Contexts contexts = make_ranks(2, "inproc");
  unsetenv("FARANDOLE_ALGORITHM");
  run_ranks(contexts, [](Context& context, Communicator& world) {
    expect_sum(world);
    EXPECT_EQ(calls_of(context, "swapped"), 1u);
  });
}

INSTANTIATE_TEST_SUITE_P(All, FromFiles, ::testing::Values("inproc", "shm", "tcp", "device"),
                         [](const auto& one) { return one.param; });

}  // namespace
}  // namespace farandole::testing
