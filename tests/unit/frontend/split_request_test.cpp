// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "frontend/split_request.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>

namespace farandole {
namespace {

// Goal: a request arrives as it was made, in the same bytes on every machine.
// Method: extremes there and back; the bytes of one request.
TEST(SplitRequest, SurvivesTheWay) {
  constexpr auto kLeast = std::numeric_limits<std::int64_t>::min();
  for (const SplitRequest& made :
       {SplitRequest{kLeast, -1, true, 0xffffffff}, SplitRequest{-1, kLeast, false, 1},
        SplitRequest{0, 0, true, 7}}) {
    const std::string bytes = encode(made);
    EXPECT_EQ(bytes.size(), kSplitRequestBytes);
    EXPECT_EQ(decode_split_request(bytes), made);
  }
  const std::string expected("\2\0\0\0\0\0\0\0\3\1\0\0\0\0\0\0\1\5\4\0\0", kSplitRequestBytes);
  EXPECT_EQ(encode({2, 0x103, true, 0x405}), expected);
}

// Goal: damaged bytes are refused.
// Method: every prefix, a byte more, a flag that is none, the number of the world; any other
// single bit gives the request that encode() writes so.
TEST(SplitRequest, RefusesDamage) {
  const std::string bytes = encode({5, 6, true, 2});
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    EXPECT_FALSE(decode_split_request(bytes.substr(0, n))) << n;
  }
  EXPECT_FALSE(decode_split_request(bytes + '\0'));
  int refused = 0;
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string damaged = bytes;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << bit % 8);
    const auto request = decode_split_request(damaged);
    refused += request ? 0 : 1;
    if (request) {
      EXPECT_EQ(encode(*request), damaged) << bit;
    }
  }
  EXPECT_EQ(refused, 7 + 1);
}

}  // namespace
}  // namespace farandole
