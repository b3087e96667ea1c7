// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "algorithms/registry.hpp"
#include "unit/frontend/ranks.hpp"

// Goal: an average is divided once, by the number of ranks, whichever algorithm sums it up and
// wherever its sums become complete; sums of integers do not overflow.
// Method: every algorithm that reduces, with its options, over inproc, in place and apart: floats
// whose sum is a multiple of the ranks, and integers near the largest, against 128-bit sums.
namespace farandole::testing {
namespace {

__extension__ using Exact = __int128;
template <class T>
using Data = std::vector<T>;
template <class T>
constexpr DType kType = DType::kFloat64;
template <>
constexpr DType kType<std::int64_t> = DType::kInt64;
template <>
constexpr DType kType<std::uint8_t> = DType::kUInt8;
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

template <class T>
T input(int rank, int rank_count, std::size_t index) {
  const std::int64_t number = rank + std::int64_t(index);
  if constexpr (std::is_floating_point_v<T>) return static_cast<T>(number * 2 * rank_count);
  return static_cast<T>(std::numeric_limits<T>::max() - static_cast<T>(number % 50));
}

template <class T>
Data<T> inputs(int rank, int rank_count, std::size_t count) {
  Data<T> data(count);
  for (std::size_t i = 0; i < count; ++i) data[i] = input<T>(rank, rank_count, i);
  return data;
}

template <class T>
T average(int rank_count, std::size_t index) {
  Exact sum = 0;
  for (int rank = 0; rank < rank_count; ++rank) {
    sum += static_cast<Exact>(input<T>(rank, rank_count, index));
  }
  return static_cast<T>(sum / rank_count);
}

/// The results at this rank, from `mine` to `out`; none where it is promised none.
template <class T>
std::size_t call(Communicator& world, Collective collective, const Data<T>& mine, T* out,
                 const std::string& spec) {
  const CallOptions options{.algorithm = spec};
  const auto p = static_cast<std::size_t>(world.size());
  const bool scatters = collective == Collective::kReducescatter;
  const Count count{scatters ? mine.size() / p : mine.size()};
  const Rank root{world.size() - 1};
  const Reduction op = Reduction::kAverage;
  const auto done = collective == Collective::kAllreduce
                        ? world.allreduce(mine.data(), out, count, kType<T>, op, options)
                    : scatters ? world.reducescatter(mine.data(), out, count, kType<T>, op, options)
                               : world.reduce(mine.data(), out, count, kType<T>, root, op, options);
  EXPECT_TRUE(done) << spec << ": " << done.error().message;
  return collective == Collective::kReduce && world.rank() != root ? 0 : count.value();
}

template <class T>
void check(Communicator& world, Collective collective, const std::string& spec) {
  const auto p = static_cast<std::size_t>(world.size());
  const bool scatters = collective == Collective::kReducescatter;
  const int rank = world.rank().value();
  const std::size_t first = scatters ? kCount * static_cast<std::size_t>(rank) : 0;
  const Data<T> mine = inputs<T>(rank, world.size(), scatters ? kCount * p : kCount);
  Data<T> out(mine.size()), place = mine;
  const std::size_t promised = call(world, collective, mine, out.data(), spec);
  T* const own = place.data() + first;
  call(world, collective, place, own, spec);
  EXPECT_EQ(mine, inputs<T>(rank, world.size(), mine.size()));
  for (std::size_t i = 0; i < promised; ++i) {
    ASSERT_EQ(out[i], average<T>(world.size(), first + i)) << spec << " of " << p;
    ASSERT_EQ(own[i], average<T>(world.size(), first + i)) << spec << " of " << p << " in place";
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
        check<double>(world, info->collective, spec);
        check<std::int64_t>(world, info->collective, spec);
        check<std::uint8_t>(world, info->collective, spec);
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Inproc, Average, ::testing::Values(1, 2, 3, 4, 6, 8, 9));

}  // namespace
}  // namespace farandole::testing
