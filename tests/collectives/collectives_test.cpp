// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "unit/frontend/ranks.hpp"

namespace farandole::testing {
namespace {

constexpr DType kLong = DType::kInt64;

class Collectives : public ::testing::TestWithParam<std::tuple<std::string, bool, int>> {
 protected:
  Contexts ranks() const {
    const auto& [transport, peer_memory, p] = GetParam();
    return make_ranks(p, transport, peer_memory);
  }
};

std::vector<std::int64_t> unique(int rank, std::size_t count) {
  std::vector<std::int64_t> data(count);
  std::iota(data.begin(), data.end(), std::int64_t{rank} * 1'000'000'000);
  return data;
}

// Goal: allgather, reducescatter and broadcast from every root are right, apart and in place, for
// sizes that travel inside a slot, through a pipe and in many pieces.
// Method: a value unique to (rank, index), compared with the definition.
TEST_P(Collectives, MatchTheirDefinitions) {
  Contexts contexts = ranks();
  run_ranks(contexts, [](Context&, Communicator& world) {
    const int rank = world.rank().value();
    const auto p = static_cast<std::size_t>(world.size());
    for (const std::size_t n : {0u, 1u, 7u, 505u, 70'001u}) {
      for (const char* algorithm : {"ring", "direct"}) {
        const CallOptions options{.algorithm = algorithm};
        const auto mine = unique(rank, n);
        std::vector<std::int64_t> all(n * p + 1, -1);
        ASSERT_TRUE(world.allgather(mine.data(), all.data(), Count{n}, kLong, options));
        std::vector<std::int64_t> again(n * p + 1, -1);
        std::copy(mine.begin(), mine.end(), again.begin() + static_cast<std::ptrdiff_t>(n) * rank);
        ASSERT_TRUE(world.allgather(again.data() + n * static_cast<std::size_t>(rank), again.data(),
                                    Count{n}, kLong, options));
        for (std::size_t r = 0; r < p; ++r) {
          const auto wanted = unique(static_cast<int>(r), n);
          const auto at = static_cast<std::ptrdiff_t>(r * n);
          ASSERT_TRUE(std::equal(wanted.begin(), wanted.end(), all.begin() + at));
          ASSERT_TRUE(std::equal(wanted.begin(), wanted.end(), again.begin() + at));
        }
        std::vector<std::int64_t> input = unique(rank, n * p), output(n + 1, -1);
        ASSERT_TRUE(world.reducescatter(input.data(), output.data(), Count{n}, kLong,
                                        Reduction::kSum, options));
        for (std::size_t i = 0; i < n; ++i) {
          std::int64_t sum = 0;
          for (std::size_t r = 0; r < p; ++r) {
            sum += std::int64_t(r) * 1'000'000'000 + std::int64_t(n) * rank + std::int64_t(i);
          }
          ASSERT_EQ(output[i], sum) << algorithm << " " << i << " of " << n;
        }
      }
      for (int root = 0; root < world.size(); ++root) {
        std::vector<std::int64_t> data = unique(rank, n), copy(n, -1);
        ASSERT_TRUE(world.broadcast(data.data(), copy.data(), Count{n}, kLong, Rank{root}));
        ASSERT_TRUE(world.broadcast(data.data(), data.data(), Count{n}, kLong, Rank{root}));
        ASSERT_EQ(copy, unique(root, n));
        ASSERT_EQ(data, unique(root, n));
      }
    }
  });
}

// Goal: a barrier holds everybody until the last has come.
// Method: each rank counts itself before the barrier; after it all must have been counted.
TEST_P(Collectives, BarrierWaitsForAll) {
  Contexts contexts = ranks();
  std::atomic<int> arrived{0};
  run_ranks(contexts, [&](Context&, Communicator& world) {
    for (int round = 1; round <= 20; ++round) {
      ++arrived;
      ASSERT_TRUE(world.barrier());
      ASSERT_GE(arrived.load(), round * world.size());
    }
  });
}

// Goal: many operations in flight at once, finished in any order, keep apart; waiting backwards
// and dropping requests is fine.
// Method: 60 allreduces of different sizes and algorithms started together, waited for in reverse.
TEST_P(Collectives, ManyInFlight) {
  Contexts contexts = ranks();
  run_ranks(contexts, [](Context&, Communicator& world) {
    constexpr std::array kAlgorithms = {"ring", "recursive_doubling", "rabenseifner", "direct"};
    constexpr std::size_t kOperations = 60;
    std::vector<std::vector<std::int64_t>> data;
    std::vector<Request> requests;
    for (std::size_t i = 0; i < kOperations; ++i) {
      data.emplace_back(1 + i * 97, std::int64_t(i) + world.rank().value());
    }
    for (std::size_t i = 0; i < kOperations; ++i) {
      auto request = world.start(Collective::kAllreduce, data[i].data(), data[i].data(),
                                 Count{data[i].size()}, kLong, Reduction::kSum, Rank{0},
                                 {.algorithm = kAlgorithms[i % kAlgorithms.size()]});
      ASSERT_TRUE(request) << request.error().message;
      requests.push_back(*std::move(request));
    }
    for (std::size_t i = kOperations; i-- > 0;) ASSERT_TRUE(requests[i].wait());
    const std::int64_t p = world.size();
    for (std::size_t i = 0; i < kOperations; ++i) {
      for (const std::int64_t value : data[i])
        ASSERT_EQ(value, p * std::int64_t(i) + p * (p - 1) / 2);
    }
  });
}

std::string label(const ::testing::TestParamInfo<std::tuple<std::string, bool, int>>& info) {
  const auto& [transport, peer_memory, p] = info.param;
  return transport + (peer_memory ? "" : "_staged") + "_" + std::to_string(p);
}

INSTANTIATE_TEST_SUITE_P(
    All, Collectives,
    ::testing::Combine(::testing::Values("inproc", "kernel", "shm", "tcp", "fault", "device"),
                       ::testing::Values(true, false), ::testing::Values(1, 2, 3, 8)),
    label);

// Goal: size_shift moves every threshold between algorithms, and nothing else.
// Method: whatever the planner's thresholds are, 2^s times the bytes must choose what shift s does.
TEST(CallOptions, SizeShiftChoosesAsForAnotherSize) {
  Contexts contexts = make_ranks(4, "inproc", false);
  run_ranks(contexts, [](Context& context, Communicator& world) {
    const auto chosen = [&](std::size_t count, int shift) {
      std::vector<float> values(count, 1.0f);
      std::map<std::string, Statistics::Calls> before = context.statistics().plans;
      EXPECT_TRUE(world.allreduce(values.data(), values.data(), Count{count}, DType::kFloat32,
                                  Reduction::kSum, {.size_shift = shift}));
      EXPECT_EQ(values[0], 4.0f);
      for (const auto& [plan, calls] : context.statistics().plans) {
        if (calls.calls != before[plan].calls) return plan;
      }
      return std::string("none");
    };
    std::set<std::string> plans;
    for (const int shift : {-8, -3, 0, 3, 8}) {
      const std::size_t count = std::size_t{1} << 12;
      const std::size_t other = shift < 0 ? count >> -shift : count << shift;
      EXPECT_EQ(chosen(count, shift), chosen(other, 0)) << shift;
      plans.insert(chosen(count, shift));
    }
    EXPECT_GT(plans.size(), 1u);
  });
}

}  // namespace
}  // namespace farandole::testing
