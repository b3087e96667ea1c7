// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "algorithms/registry.hpp"
#include "unit/frontend/ranks.hpp"

// Goal: an average is divided once, by the number of ranks, whichever algorithm sums it up and
// wherever its sums become complete.
// Method: every algorithm that reduces, with its options, over inproc: whole numbers whose sum is a
// multiple of the ranks, in place and apart.
namespace farandole::testing {
namespace {

using Data = std::vector<std::int64_t>;
constexpr std::size_t kCount = 61;

std::vector<std::string> specs_of(const AlgorithmInfo& info, int rank_count) {
  std::vector<std::string> specs = {std::string(info.name)};
  const auto add = [&](const std::string& option) {
    std::string spec = std::string(info.name) + ":" + option;
    if (build_schedule(info.collective, spec, rank_count, 0)) specs.push_back(std::move(spec));
  };
  for (const char* option : {"chunks=1", "chunks=4", "radix=2", "radix=4"}) add(option);
  for (const char* inner : {"2", "3", "4"}) {
    for (const char* kind : {"ring", "direct", "halving"}) {
      const std::string outer = std::to_string(rank_count / (inner[0] - '0'));
      add(std::string("layers=") + inner + kind + "/" + outer + "ring");
      add(std::string("layers=") + inner + "ring/" + outer + kind);
    }
  }
  return specs;
}

Data inputs(int rank, int rank_count, std::size_t count) {
  Data data(count);
  for (std::size_t i = 0; i < count; ++i) data[i] = (rank + std::int64_t(i)) * 2 * rank_count;
  return data;
}

std::int64_t average(int rank_count, std::size_t index) {
  return (rank_count - 1 + 2 * std::int64_t(index)) * rank_count;
}

/// The results at this rank, from `mine` to `out`; none where it is promised none.
std::size_t call(Communicator& world, Collective collective, const Data& mine, std::int64_t* out,
                 const std::string& spec) {
  const CallOptions options{.algorithm = spec};
  const auto p = static_cast<std::size_t>(world.size());
  const bool scatters = collective == Collective::kReducescatter;
  const Count count{scatters ? mine.size() / p : mine.size()};
  const Rank root{world.size() - 1};
  const Reduction op = Reduction::kAverage;
  const auto done = collective == Collective::kAllreduce
                        ? world.allreduce(mine.data(), out, count, DType::kInt64, op, options)
                    : scatters
                        ? world.reducescatter(mine.data(), out, count, DType::kInt64, op, options)
                        : world.reduce(mine.data(), out, count, DType::kInt64, root, op, options);
  EXPECT_TRUE(done) << spec << ": " << done.error().message;
  return collective == Collective::kReduce && world.rank() != root ? 0 : count.value();
}

void check(Communicator& world, Collective collective, const std::string& spec) {
  const auto p = static_cast<std::size_t>(world.size());
  const bool scatters = collective == Collective::kReducescatter;
  const int rank = world.rank().value();
  const std::size_t first = scatters ? kCount * static_cast<std::size_t>(rank) : 0;
  const Data mine = inputs(rank, world.size(), scatters ? kCount * p : kCount);
  Data out(mine.size()), place = mine;
  const std::size_t promised = call(world, collective, mine, out.data(), spec);
  std::int64_t* const own = place.data() + first;
  call(world, collective, place, own, spec);
  EXPECT_EQ(mine, inputs(rank, world.size(), mine.size()));
  for (std::size_t i = 0; i < promised; ++i) {
    ASSERT_EQ(out[i], average(world.size(), first + i)) << spec << " of " << p;
    ASSERT_EQ(own[i], average(world.size(), first + i)) << spec << " of " << p << " in place";
  }
}

class Average : public ::testing::TestWithParam<int> {};

TEST_P(Average, OfEveryAlgorithm) {
  Contexts contexts = make_ranks(GetParam(), "inproc");
  run_ranks(contexts, [](Context&, Communicator& world) {
    for (const AlgorithmInfo* info : algorithms()) {
      if (info->collective != Collective::kAllreduce && info->collective != Collective::kReduce &&
          info->collective != Collective::kReducescatter) {
        continue;
      }
      for (const std::string& spec : specs_of(*info, world.size())) {
        if (!build_schedule(info->collective, spec, world.size(), 0)) continue;
        check(world, info->collective, spec);
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Inproc, Average, ::testing::Values(1, 2, 3, 4, 6, 8, 9));

}  // namespace
}  // namespace farandole::testing
