// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/layout.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace farandole {
namespace {

std::vector<std::size_t> lengths(const Layout& layout, std::int64_t chunks) {
  std::vector<std::size_t> result;
  for (std::int64_t c = 0; c < chunks; ++c) result.push_back(layout.length(c, 1).value());
  return result;
}

using Lengths = std::vector<std::size_t>;

// Goal: shared chunks cover n elements once, start on cache lines, and all but the last ones
// are equally long.
// Method: exhaust small counts, chunks and element sizes, and check these properties.
TEST(Layout, SharedChunksTileTheBufferOnCacheLines) {
  for (std::size_t n = 0; n <= 300; ++n) {
    for (std::int64_t chunks = 1; chunks <= 20; ++chunks) {
      for (const std::size_t element : {1, 2, 4, 8, 16}) {
        const Layout layout = Layout::share(Count{n}, chunks, Bytes{element});
        const std::size_t slot = layout.chunk_elements_max().value();
        EXPECT_EQ(slot * element % 64, 0u);
        EXPECT_EQ(layout.offset(0), Count{0});
        EXPECT_EQ(layout.offset(chunks), Count{n});
        EXPECT_EQ(layout.length(0, chunks), Count{n});
        for (std::int64_t c = 0; c < chunks; ++c) {
          const std::size_t at = layout.offset(c).value(), long_ = layout.length(c, 1).value();
          EXPECT_LE(long_, slot);
          EXPECT_TRUE(at == static_cast<std::size_t>(c) * slot || long_ == 0);
          EXPECT_TRUE(long_ == slot || at + long_ == n);
        }
      }
    }
  }
}

TEST(Layout, OddCases) {
  const Bytes four{4};
  EXPECT_EQ(lengths(Layout::share(Count{0}, 3, four), 3), (Lengths{0, 0, 0}));
  EXPECT_EQ(lengths(Layout::share(Count{1}, 3, four), 3), (Lengths{1, 0, 0}));
  EXPECT_EQ(lengths(Layout::share(Count{17}, 3, four), 3), (Lengths{16, 1, 0}));
  EXPECT_EQ(lengths(Layout::share(Count{49}, 3, four), 3), (Lengths{32, 17, 0}));
  EXPECT_EQ(lengths(Layout::share(Count{5}, 1, four), 1), (Lengths{5}));
  EXPECT_EQ(Layout::share(Count{100}, 0, four).chunk_elements_max(), Count{0});
  EXPECT_EQ(lengths(Layout::repeat(Count{7}, 3), 3), (Lengths{7, 7, 7}));
  EXPECT_EQ(Layout::repeat(Count{7}, 3).offset(2), Count{14});
  EXPECT_EQ(Layout::repeat(Count{7}, 3).chunk_elements_max(), Count{7});
  EXPECT_EQ(lengths(Layout::repeat(Count{0}, 2), 2), (Lengths{0, 0}));
}

// Goal: chunks of given lengths follow each other, empty ones included.
TEST(Layout, ChunksOfGivenLengths) {
  const Lengths counts = {3, 0, 5, 0};
  const Layout layout = Layout::by_counts(counts);
  EXPECT_EQ(lengths(layout, 4), counts);
  EXPECT_EQ(layout.offset(2), Count{3});
  EXPECT_EQ(layout.offset(4), Count{8});
  EXPECT_EQ(layout.length(1, 3), Count{5});
  EXPECT_EQ(layout.chunk_elements_max(), Count{5});
  EXPECT_EQ(Layout::by_counts({}).offset(0), Count{0});
}

// Goal: large buffers of many ranks overflow nothing.
TEST(Layout, HoldsAtTheLargestSizes) {
  const std::size_t n = std::size_t{1} << 46;
  const Layout layout = Layout::share(Count{n}, 27'600, Bytes{1});
  EXPECT_EQ(layout.offset(27'600), Count{n});
  EXPECT_EQ(layout.length(27'599, 1), Count{n} - layout.offset(27'599));
  EXPECT_GT(layout.length(27'599, 1), Count{0});
}

}  // namespace
}  // namespace farandole
