// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "unit/frontend/ranks.hpp"

// Goal: reduce, gather, scatter and alltoall do what their names say at every root, apart and in
// place, and leave alone what is not theirs.
// Method: a value unique to (rank, index), compared with the definition; guards behind the ends.
namespace farandole::testing {
namespace {

using Data = std::vector<std::int64_t>;
constexpr DType kLong = DType::kInt64;
constexpr std::int64_t kGuard = -7;

std::int64_t element(int rank, std::size_t index) {
  return std::int64_t{rank} * 1'000'000'000 + static_cast<std::int64_t>(index);
}

Data unique(int rank, std::size_t count) {
  Data data(count + 1, kGuard);
  for (std::size_t i = 0; i < count; ++i) data[i] = element(rank, i);
  return data;
}

class WholeSet : public ::testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  void on_ranks(const std::function<void(Communicator&, std::size_t)>& body) {
    const auto& [transport, p] = GetParam();
    Contexts contexts = make_ranks(p, transport);
    run_ranks(contexts, [&](Context&, Communicator& world) {
      for (const std::size_t n : {0u, 1u, 7u, 505u, 9'001u}) body(world, n);
    });
  }
};

TEST_P(WholeSet, Reduce) {
  on_ranks([](Communicator& world, std::size_t n) {
    const int p = world.size(), rank = world.rank().value();
    for (int root = 0; root < p; ++root) {
      Data wanted(n + 1, kGuard);
      for (std::size_t i = 0; i < n; ++i) wanted[i] = element(p * (p - 1) / 2, i * std::size_t(p));
      const bool at_root = rank == root;
      const Data mine = unique(rank, n);
      Data out(n + 1, kGuard), place = mine;
      ASSERT_TRUE(
          world.reduce(mine.data(), at_root ? out.data() : nullptr, Count{n}, kLong, Rank{root}));
      ASSERT_TRUE(world.reduce(place.data(), place.data(), Count{n}, kLong, Rank{root}));
      EXPECT_EQ(place.back(), kGuard);
      EXPECT_EQ(mine, unique(rank, n));
      if (!at_root) continue;
      EXPECT_EQ(out, wanted);
      EXPECT_EQ(place, wanted);
      out.assign(n + 1, kGuard);
    }
    Data average = unique(rank, n);
    ASSERT_TRUE(world.reduce(average.data(), average.data(), Count{n}, kLong, Rank{p - 1},
                             Reduction::kAverage));
    for (std::size_t i = 0; rank == p - 1 && i < n; ++i) {
      EXPECT_EQ(average[i], element(p * (p - 1) / 2, i * std::size_t(p)) / p);
    }
  });
}

TEST_P(WholeSet, Gather) {
  on_ranks([](Communicator& world, std::size_t n) {
    const auto p = static_cast<std::size_t>(world.size());
    const auto rank = static_cast<std::size_t>(world.rank().value());
    Data wanted(n * p + 1, kGuard);
    for (std::size_t i = 0; i < n * p; ++i) wanted[i] = element(int(i / n), i % n);
    for (int root = 0; root < world.size(); ++root) {
      const bool at_root = world.rank() == Rank{root};
      const Data mine = unique(int(rank), n);
      Data out(n * p + 1, kGuard), place(n * p + 1, kGuard);
      std::copy_n(mine.begin(), n, place.begin() + std::ptrdiff_t(rank * n));
      ASSERT_TRUE(
          world.gather(mine.data(), at_root ? out.data() : nullptr, Count{n}, kLong, Rank{root}));
      ASSERT_TRUE(world.gather(place.data() + rank * n, at_root ? place.data() : nullptr, Count{n},
                               kLong, Rank{root}));
      EXPECT_EQ(mine, unique(int(rank), n));
      if (!at_root) continue;
      EXPECT_EQ(out, wanted);
      EXPECT_EQ(place, wanted);
    }
  });
}

TEST_P(WholeSet, Scatter) {
  on_ranks([](Communicator& world, std::size_t n) {
    const auto p = static_cast<std::size_t>(world.size());
    const auto rank = static_cast<std::size_t>(world.rank().value());
    for (int root = 0; root < world.size(); ++root) {
      const bool at_root = world.rank() == Rank{root};
      Data wanted(n + 1, kGuard);
      for (std::size_t i = 0; i < n; ++i) wanted[i] = element(root, rank * n + i);
      Data all = unique(root, n * p), out(n + 1, kGuard);
      ASSERT_TRUE(
          world.scatter(at_root ? all.data() : nullptr, out.data(), Count{n}, kLong, Rank{root}));
      EXPECT_EQ(out, wanted);
      out.assign(n + 1, kGuard);
      ASSERT_TRUE(world.scatter(at_root ? all.data() : nullptr,
                                at_root ? all.data() + rank * n : out.data(), Count{n}, kLong,
                                Rank{root}));
      if (!at_root) {
        EXPECT_EQ(out, wanted);
      }
      EXPECT_EQ(all, unique(root, n * p));
    }
  });
}

TEST_P(WholeSet, Alltoall) {
  on_ranks([](Communicator& world, std::size_t n) {
    const auto p = static_cast<std::size_t>(world.size());
    const auto rank = static_cast<std::size_t>(world.rank().value());
    Data wanted(n * p + 1, kGuard);
    for (std::size_t i = 0; i < n * p; ++i) wanted[i] = element(int(i / n), rank * n + i % n);
    const Data mine = unique(int(rank), n * p);
    Data out(n * p + 1, kGuard), place = mine;
    ASSERT_TRUE(world.alltoall(mine.data(), out.data(), Count{n}, kLong));
    ASSERT_TRUE(world.alltoall(place.data(), place.data(), Count{n}, kLong));
    EXPECT_EQ(mine, unique(int(rank), n * p));
    EXPECT_EQ(out, wanted);
    EXPECT_EQ(place, wanted);
  });
}

// Goal: data types that nothing reduces move like any other, and reductions say why not.
TEST_P(WholeSet, Float8IsMovedAndNotReduced) {
  on_ranks([](Communicator& world, std::size_t n) {
    for (const DType dtype : {DType::kFloat8E4M3, DType::kFloat8E5M2}) {
      const auto p = static_cast<std::size_t>(world.size());
      std::vector<std::uint8_t> mine(n + 1, std::uint8_t(world.rank().value())), all(n * p + 1);
      ASSERT_TRUE(world.allgather(mine.data(), all.data(), Count{n}, dtype));
      for (std::size_t i = 0; i < n * p; ++i) ASSERT_EQ(all[i], i / n);
      const auto refused = world.allreduce(mine.data(), mine.data(), Count{n}, dtype);
      ASSERT_FALSE(refused);
      EXPECT_EQ(refused.error().kind, ErrorKind::kInvalidArgument);
      EXPECT_NE(refused.error().message.find(name(dtype)), std::string::npos);
    }
  });
}

std::string label(const ::testing::TestParamInfo<std::tuple<std::string, int>>& info) {
  return std::get<0>(info.param) + "_" + std::to_string(std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Inproc, WholeSet,
                         ::testing::Combine(::testing::Values("inproc", "device"),
                                            ::testing::Values(1, 2, 3, 4, 5, 6, 7, 8, 9)),
                         label);
INSTANTIATE_TEST_SUITE_P(All, WholeSet,
                         ::testing::Combine(::testing::Values("fault", "shm", "tcp"),
                                            ::testing::Values(2, 5)),
                         label);

}  // namespace
}  // namespace farandole::testing
