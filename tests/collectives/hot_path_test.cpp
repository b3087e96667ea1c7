// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "collectives/counters.hpp"
#include "engine/claims.hpp"
#include "unit/frontend/ranks.hpp"

namespace farandole::testing {
namespace {

/// What a wait cost this thread.
class Cost {
 public:
  /// Whether it tells: a rank whose operation stands still for longer says so to all others, for
  /// which it allocates and locks.
  bool counts() const { return Clock::now() - began_ < kPatienceMin; }
  void expect_none(std::size_t n) const {
    EXPECT_EQ(counters().allocations, before_.allocations) << n;
    EXPECT_EQ(counters().locks, before_.locks) << n;
  }

 private:
  const Clock::time_point began_ = Clock::now();
  const Counters before_ = counters();
};

class HotPath : public ::testing::TestWithParam<std::tuple<std::string, const char*>> {};

// Goal: once an operation is submitted, running it allocates nothing and takes no lock.
// Method: the caller drives its own operations in wait(), so whatever the step loop does is
// counted on its thread; a first operation of each size warms up.
TEST_P(HotPath, NeitherAllocatesNorLocks) {
  const auto& [transport, algorithm] = GetParam();
  Contexts contexts = make_ranks(3, transport);
  run_ranks(contexts, [&, name = std::string(algorithm)](Context&, Communicator& world) {
    for (const std::size_t n : {1u, 1000u, 300'000u}) {
      std::vector<float> data(n, 1.0F);
      int counted = 0;
      for (int i = 0; i < 16; ++i) {
        auto request =
            world.start(Collective::kAllreduce, data.data(), data.data(), Count{n}, DType::kFloat32,
                        Reduction::kMax, Rank{0}, {.algorithm = name, .background = false});
        ASSERT_TRUE(request) << request.error().message;
        const Cost cost;
        ASSERT_TRUE(request->wait());
        if (i < 4 || !cost.counts()) continue;
        cost.expect_none(n);
        ++counted;
      }
      EXPECT_GT(counted, 0);
    }
    if (!kCounts) return;
    EXPECT_GT(counters().allocations, 0u);  // submitting does allocate: the counter counts
    EXPECT_GT(counters().locks, 0u);
  });
}

// Goal: the same for messages between two ranks.
TEST_P(HotPath, MessagesNeither) {
  Contexts contexts = make_ranks(3, std::get<0>(GetParam()));
  run_ranks(contexts, [](Context&, Communicator& world) {
    const int rank = world.rank().value();
    for (const std::size_t n : {1u, 1000u, 300'000u}) {
      std::vector<float> mine(n, 1.0F), got(n);
      const std::array messages = {
          Message::send(mine.data(), Count{n}, DType::kFloat32, Rank{(rank + 1) % 3}),
          Message::receive(got.data(), Count{n}, DType::kFloat32, Rank{(rank + 2) % 3})};
      int counted = 0;
      for (int i = 0; i < 16; ++i) {
        auto request = world.start(messages, {.background = false});
        ASSERT_TRUE(request) << request.error().message;
        const Cost cost;
        ASSERT_TRUE(request->wait());
        if (i < 4 || !cost.counts()) continue;
        cost.expect_none(n);
        ++counted;
      }
      EXPECT_GT(counted, 0);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(All, HotPath,
                         ::testing::Combine(::testing::Values("inproc", "shm", "tcp"),
                                            ::testing::Values("ring", "recursive_doubling",
                                                              "rabenseifner", "direct")),
                         [](const auto& parameter) {
                           return std::get<0>(parameter.param) + "_" + std::get<1>(parameter.param);
                         });

}  // namespace
}  // namespace farandole::testing
