// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "algorithms/registry.hpp"
#include "unit/frontend/ranks.hpp"

// Goal: with counts per rank every collective that takes them puts every element where it belongs,
// whichever algorithm that can is chosen; the others are refused by name.
// Method: counts among which are zeros and one that is much larger; values unique to (rank, index);
// the same call with every algorithm of the table.
namespace farandole::testing {
namespace {

using Data = std::vector<std::int64_t>;
using Counts = std::vector<std::size_t>;
constexpr DType kLong = DType::kInt64;

Counts counts_of(int p, int seed) {
  Counts counts;
  for (int rank = 0; rank < p; ++rank) {
    counts.push_back(static_cast<std::size_t>((rank * 5 + seed * 3) % 4) *
                     ((rank + seed) % 3 == 2 ? 300 : 1));
  }
  return counts;
}
std::size_t sum(const Counts& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}
std::size_t before(const Counts& counts, std::size_t rank) {
  return std::accumulate(counts.begin(), counts.begin() + std::ptrdiff_t(rank), std::size_t{0});
}
std::int64_t element(std::size_t rank, std::size_t index) {
  return static_cast<std::int64_t>(rank * 1'000'000'000 + index);
}
Data unique(std::size_t rank, std::size_t count) {
  Data data(count + 1, -7);
  for (std::size_t i = 0; i < count; ++i) data[i] = element(rank, i);
  return data;
}
/// counts[r] elements of each rank r, one rank after the other.
Data joined(const Counts& counts) {
  Data all;
  for (std::size_t r = 0; r < counts.size(); ++r) {
    for (std::size_t i = 0; i < counts[r]; ++i) all.push_back(element(r, i));
  }
  all.push_back(-7);
  return all;
}

/// Runs the call with the default and with every algorithm that takes it; the rest is refused.
void with_each(Communicator& world, Arguments arguments, const std::function<void()>& check) {
  arguments.by_rank = true;
  arguments.dtype = kLong;
  const auto outcome = world.run(arguments);
  ASSERT_TRUE(outcome) << outcome.error().message;
  check();
  for (const AlgorithmInfo* info : algorithms()) {
    if (info->collective != arguments.collective) continue;
    const std::string algorithm(info->name);
    const auto named = world.run(arguments, {.algorithm = algorithm});
    if (named) {
      check();
    } else {
      EXPECT_EQ(named.error().kind, ErrorKind::kInvalidArgument) << named.error().message;
    }
  }
}

class RankCounts : public ::testing::TestWithParam<int> {
 protected:
  void on_ranks(const std::function<void(Communicator&, const Counts&, std::size_t)>& body) {
    Contexts contexts = make_ranks(GetParam(), "inproc");
    run_ranks(contexts, [&](Context&, Communicator& world) {
      for (int seed = 0; seed < 3; ++seed) {
        body(world, counts_of(GetParam(), seed), static_cast<std::size_t>(world.rank().value()));
      }
    });
  }
};

TEST_P(RankCounts, Allgather) {
  on_ranks([](Communicator& world, const Counts& counts, std::size_t rank) {
    const Data mine = unique(rank, counts[rank]);
    Data out(sum(counts) + 1, -7);
    with_each(world,
              {.collective = Collective::kAllgather,
               .in = mine.data(),
               .out = out.data(),
               .out_counts = counts},
              [&] {
                EXPECT_EQ(out, joined(counts));
                std::fill(out.begin(), out.end() - 1, -1);
              });
    std::copy(mine.begin(), mine.end() - 1, out.begin() + std::ptrdiff_t(before(counts, rank)));
    with_each(world,
              {.collective = Collective::kAllgather,
               .in = out.data() + before(counts, rank),
               .out = out.data(),
               .out_counts = counts},
              [&] { EXPECT_EQ(out, joined(counts)); });
  });
}

TEST_P(RankCounts, Reducescatter) {
  on_ranks([](Communicator& world, const Counts& counts, std::size_t rank) {
    const Data mine = unique(rank, sum(counts));
    Data out(counts[rank] + 1, -7);
    const auto p = counts.size();
    with_each(world,
              {.collective = Collective::kReducescatter,
               .in = mine.data(),
               .out = out.data(),
               .in_counts = counts},
              [&] {
                for (std::size_t i = 0; i < counts[rank]; ++i) {
                  ASSERT_EQ(out[i], element(p * (p - 1) / 2, (before(counts, rank) + i) * p));
                }
                EXPECT_EQ(out.back(), -7);
              });
  });
}

TEST_P(RankCounts, GatherAndScatter) {
  on_ranks([](Communicator& world, const Counts& counts, std::size_t rank) {
    for (int root = 0; root < world.size(); ++root) {
      const bool at_root = world.rank() == Rank{root};
      const Data mine = unique(rank, counts[rank]);
      Data all(sum(counts) + 1, -7), back(counts[rank] + 1, -7);
      with_each(world,
                {.collective = Collective::kGather,
                 .in = mine.data(),
                 .out = at_root ? all.data() : nullptr,
                 .count = Count{counts[rank]},
                 .root = Rank{root},
                 .out_counts = at_root ? counts : Counts()},
                [&] {
                  if (at_root) {
                    EXPECT_EQ(all, joined(counts));
                  }
                });
      const Data source = joined(counts);
      with_each(world,
                {.collective = Collective::kScatter,
                 .in = at_root ? source.data() : nullptr,
                 .out = back.data(),
                 .count = Count{counts[rank]},
                 .root = Rank{root},
                 .in_counts = at_root ? counts : Counts()},
                [&] { EXPECT_EQ(back, mine); });
    }
  });
}

// Rank s sends (s * 7 + d * 3) % 5 elements to rank d.
TEST_P(RankCounts, Alltoall) {
  on_ranks([](Communicator& world, const Counts& counts, std::size_t rank) {
    Counts sent, received;
    const auto length = [](std::size_t s, std::size_t d) { return (s * 7 + d * 3) % 5; };
    for (std::size_t r = 0; r < counts.size(); ++r) {
      sent.push_back(length(rank, r));
      received.push_back(length(r, rank));
    }
    const Data mine = unique(rank, sum(sent));
    Data out(sum(received) + 1, -7);
    with_each(world,
              {.collective = Collective::kAlltoall,
               .in = mine.data(),
               .out = out.data(),
               .in_counts = sent,
               .out_counts = received},
              [&] {
                auto at = out.begin();
                for (std::size_t s = 0; s < counts.size(); ++s) {
                  std::size_t start = 0;
                  for (std::size_t d = 0; d < rank; ++d) start += length(s, d);
                  for (std::size_t i = 0; i < received[s]; ++i) {
                    ASSERT_EQ(*at++, element(s, start + i));
                  }
                }
                EXPECT_EQ(*at, -7);
              });
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, RankCounts, ::testing::Values(1, 2, 3, 4, 5, 6, 7, 8, 9));

// Goal: counts that make no sense are refused here, by name; counts on which ranks disagree
// everywhere, and the next operation works.
TEST(RankCounts, BadCounts) {
  Contexts contexts = make_ranks(3, "inproc");
  run_ranks(contexts, [](Context&, Communicator& world) {
    Data in(30, 1), out(30);
    Arguments arguments{.collective = Collective::kAllgather,
                        .in = in.data(),
                        .out = out.data(),
                        .dtype = kLong,
                        .by_rank = true};
    const auto refused = [&](const Counts& counts, const char* word) {
      arguments.out_counts = counts;
      const auto outcome = world.run(arguments);
      ASSERT_FALSE(outcome);
      EXPECT_EQ(outcome.error().kind, ErrorKind::kInvalidArgument);
      EXPECT_NE(outcome.error().message.find(word), std::string::npos) << outcome.error().message;
    };
    refused({1, 2}, "'out_counts' is 2 long");
    refused({1, 2, std::size_t{1} << 60}, "2^46");
    Arguments whole{.collective = Collective::kAllreduce, .by_rank = true};
    EXPECT_NE(world.run(whole).error().message.find("'by_rank'"), std::string::npos);
    const Counts odd = world.rank() == Rank{1} ? Counts{2, 3, 4} : Counts{3, 3, 3};
    arguments.out_counts = odd;
    const auto outcome = world.run(arguments);
    ASSERT_FALSE(outcome);
    EXPECT_EQ(outcome.error().kind, ErrorKind::kMismatch) << outcome.error().message;
    ASSERT_TRUE(world.barrier());
  });
}

}  // namespace
}  // namespace farandole::testing
