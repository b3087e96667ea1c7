// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "algorithms/spec.hpp"

#include <gtest/gtest.h>

namespace farandole {
namespace {

using enum Collective;

AlgorithmParameters parsed(Collective collective, std::string_view spec, std::int64_t ranks) {
  const auto result = parse_spec(collective, spec, ranks, 0);
  EXPECT_TRUE(result) << result.error().message;
  return result ? result->parameters : AlgorithmParameters{};
}

std::string refusal(Collective collective, std::string_view spec, std::int64_t ranks,
                    std::int64_t root = 0) {
  const auto result = parse_spec(collective, spec, ranks, root);
  if (result) return "accepted";
  EXPECT_EQ(result.error().kind, ErrorKind::kInvalidArgument);
  return result.error().message;
}

// Goal: every option arrives where the algorithm reads it.
TEST(AlgorithmSpec, ReadsEveryOption) {
  using Kind = Layer::Kind;
  const auto layers =
      parsed(kAllreduce, "hierarchical:layers=4ring/8direct/2halving/3", 192).layers;
  EXPECT_EQ(layers,
            (std::vector<Layer>{{4, Kind::kRing}, {8, Kind::kDirect}, {2, Kind::kHalving}, {3}}));
  EXPECT_EQ(parsed(kBroadcast, "knomial:radix=8", 3).radix, 8);
  const auto chain = parsed(kBroadcast, "pipelined_chain:chunks=32,order=0/2/1/3", 4);
  EXPECT_EQ(chain.chunks, 32);
  EXPECT_EQ(chain.order, (std::vector<std::int32_t>{0, 2, 1, 3}));
  EXPECT_EQ(parsed(kReduce, "binomial", 9).rank_count, 9);
}

// Goal: what is wrong is refused, naming algorithm, option, what was given and what is allowed.
TEST(AlgorithmSpec, RefusesLayersThatDoNotFit) {
  const std::string start = "algorithm \"hierarchical\" for allreduce: option \"layers\" is ";
  EXPECT_EQ(refusal(kAllreduce, "hierarchical:layers=3/5", 12),
            start + "\"3/5\", allowed is layers whose product is 12, the number of ranks");
  EXPECT_EQ(refusal(kAllreduce, "hierarchical:layers=6halving/2", 12),
            start + "\"6halving/2\", allowed is halving in layers whose size is a power of two");
  EXPECT_EQ(refusal(kAllreduce, "hierarchical:layers=2048direct", 2048),
            start + "\"2048direct\", allowed is direct in layers of at most 1024");
  const std::string form = "sizes as in 4ring/8direct/2halving, innermost first, from 1 on";
  for (const std::string value :
       {"", "4/", "4tree/3", "0/12", "-3/4", "4 /3", "99999999999999999999"}) {
    EXPECT_EQ(refusal(kAllreduce, "hierarchical:layers=" + value, 12),
              start + "\"" + value + "\", allowed is " + form);
  }
  for (const char* value : {"12/2", "4", "9223372036854775807/2", "3/4/4294967296/4294967296"}) {
    EXPECT_NE(refusal(kAllreduce, std::string("hierarchical:layers=") + value, 12)
                  .find("allowed is layers whose product is 12"),
              std::string::npos);
  }
}

TEST(AlgorithmSpec, RefusesOtherValuesThatDoNotFit) {
  for (const char* value : {"1", "9", "", "two", "4x", "-2"}) {
    EXPECT_EQ(refusal(kReduce, std::string("knomial:radix=") + value, 4),
              std::string("algorithm \"knomial\" for reduce: option \"radix\" is \"") + value +
                  "\", allowed is 2 to 8");
  }
  EXPECT_NE(refusal(kBroadcast, "pipelined_chain:chunks=0", 4).find("allowed is 1 to 4096"),
            std::string::npos);
  for (const char* value :
       {"0/1/2", "0/1/2/2", "0/1/2/4", "0/1/2/3/0", "", "3/2/1/x", "3/2/1/-0"}) {
    EXPECT_EQ(refusal(kBroadcast, std::string("pipelined_chain:order=") + value, 4),
              std::string("algorithm \"pipelined_chain\" for broadcast: option \"order\" is \"") +
                  value + "\", allowed is each rank from 0 to 3 once, as in 0/2/1/3");
  }
}

TEST(AlgorithmSpec, RefusesOptionsThatTheAlgorithmDoesNotRead) {
  EXPECT_EQ(refusal(kAllreduce, "hierarchical:radix=4", 4),
            "algorithm \"hierarchical\" for allreduce: no option \"radix=4\"; there is "
            "layers=..., order=...");
  EXPECT_EQ(refusal(kAllreduce, "ring:chunks=4", 4),
            "algorithm \"ring\" for allreduce: no option \"chunks=4\"; there is none");
  for (const char* spec : {"hierarchical:", "hierarchical:layers", "hierarchical:=4",
                           "hierarchical:layers=4,layers=4", "hierarchical:layers=4,"}) {
    EXPECT_NE(refusal(kAllreduce, spec, 4).find(": no option "), std::string::npos) << spec;
  }
}

TEST(AlgorithmSpec, RefusesRanksAndRootsOutsideTheRange) {
  EXPECT_EQ(refusal(kAlltoall, "direct", 1025),
            "algorithm \"direct\" for alltoall: the number of ranks is 1025, allowed is 1 to 1024");
  EXPECT_EQ(refusal(kAllreduce, "ring", 0),
            "algorithm \"ring\" for allreduce: the number of ranks is 0, allowed is 1 to 1048576");
  EXPECT_EQ(refusal(kGather, "binomial", 4, 4),
            "algorithm \"binomial\" for gather: the root is 4, allowed is 0 to 3");
  EXPECT_EQ(refusal(kAllreduce, "ring", 4, 4), "accepted");
  EXPECT_EQ(refusal(kBroadcast, "ring", 4).substr(0, 40),
            "no algorithm \"ring\" for broadcast; there");
}

}  // namespace
}  // namespace farandole
