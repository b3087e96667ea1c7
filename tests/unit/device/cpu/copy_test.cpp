// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/copy.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

namespace farandole {
namespace {

std::vector<std::byte> numbered(std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = std::byte(i * 7 + i / 251);
  return bytes;
}

// Goal: all bytes, and no others, whatever the alignment of either side.
// Method: lengths around lines and around where the way of copying changes, between guards, on
// every width that the processor has.
TEST(Copy, TakesAllBytesAndNoOthers) {
  const std::vector<std::byte> source = numbered(9000);
  std::vector<decltype(&copy_bytes)> copies = {&copy_bytes, &copy_asking_ahead, &copy_past_cache,
                                               &copy_to_memory};
  for (const CopyWay& way : copy_ways()) {
    copies.insert(copies.end(), {way.through_cache, way.asking_ahead, way.past_cache});
  }
  for (const auto copy : copies) {
    for (const std::size_t bytes : {0, 1, 63, 64, 65, 200, 1023, 1024, 1025, 1100, 4096, 8191}) {
      for (const std::size_t from : {0, 1, 17, 64}) {
        for (const std::size_t to : {64, 65, 79, 127}) {
          std::vector<std::byte> target(9000, std::byte{0xEE}), expected = target;
          for (std::size_t i = 0; i < bytes; ++i) expected[to + i] = source[from + i];
          copy(target.data() + to, source.data() + from, bytes);
          ASSERT_EQ(target, expected) << bytes << " bytes from " << from << " to " << to;
        }
      }
    }
  }
}

TEST(Copy, NothingNeedsNoMemory) {
  copy_bytes(nullptr, nullptr, 0);
  copy_past_cache(nullptr, nullptr, 0);
  copy_asking_ahead(nullptr, nullptr, 0);
  copy_to_memory(nullptr, nullptr, 0);
}

}  // namespace
}  // namespace farandole
