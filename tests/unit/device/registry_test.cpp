// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "device/registry.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "unit/device/fake_device.hpp"

namespace farandole::testing {
namespace {

TEST(DeviceRegistry, TheCpuOwnsWhatNobodyElseDoes) {
  DeviceRegistry& devices = DeviceRegistry::instance();
  int here = 0, there = 0;
  EXPECT_EQ(devices.owner(&here)->name(), "cpu");
  EXPECT_EQ(devices.owner(nullptr), devices.owner(&here));
  {
    const FakeDeviceGuard guard(1);
    EXPECT_EQ(devices.owner(&here)->name(), "fake");
    EXPECT_TRUE(devices.owns_alike(&here, &there));
  }
  EXPECT_EQ(devices.owner(&here)->name(), "cpu");
}

// Goal: work that is cut into pieces does what the whole does, whatever the kind.
// Method: every kind at once and in pieces of odd lengths; elements and wide elements differ.
TEST(LocalWork, PiecesMakeTheWhole) {
  using Kind = LocalWork::Kind;
  constexpr std::size_t kCount = 1000;
  std::vector<std::int64_t> left(2 * kCount), right(2 * kCount);
  std::iota(left.begin(), left.end(), -700);
  std::iota(right.begin(), right.end(), 5);
  for (const Kind kind :
       {Kind::kCopy, Kind::kReduce, Kind::kDivide, Kind::kScale, Kind::kWiden, Kind::kNarrow}) {
    std::vector<std::int64_t> whole(2 * kCount, -1), pieces(2 * kCount, -1);
    LocalWork work{.kind = kind,
                   .dtype = DType::kInt64,
                   .target = reinterpret_cast<std::byte*>(whole.data()),
                   .left = reinterpret_cast<const std::byte*>(left.data()),
                   .right = reinterpret_cast<const std::byte*>(right.data()),
                   .count = Count{kCount},
                   .kernel = *find_kernel(DType::kInt64, Reduction::kSum),
                   .divisor = 3,
                   .factor = 2.0};
    run(work);
    work.target = reinterpret_cast<std::byte*>(pieces.data());
    for (std::size_t at = 0; at < kCount; at += 77) {
      run(piece(work, Count{at}, Count{std::min<std::size_t>(77, kCount - at)}));
    }
    EXPECT_EQ(whole, pieces) << static_cast<int>(kind);
    EXPECT_NE(whole, std::vector<std::int64_t>(2 * kCount, -1)) << static_cast<int>(kind);
  }
}

}  // namespace
}  // namespace farandole::testing
