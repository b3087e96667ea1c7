// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "planner/tuning.hpp"

#include <gtest/gtest.h>

namespace farandole {
namespace {

constexpr const char* kText =
    "# measured\n"
    "farandole-tuning 1\n"
    "\n"
    "allreduce ranks=4 hosts=4 transport=tcp bytes<=16384 recursive_doubling  # short\n"
    "allreduce ranks=4 hosts=4 transport=tcp bytes>16384 bytes<=1048576 hierarchical:layers=2/2\n"
    "allreduce ranks=4 ring\n"
    "broadcast transport=shm binomial\n";

const std::vector<std::string_view> kTransports = {"shm", "tcp"};

// Goal: the first line that matches counts. Method: ask at the borders.
TEST(Tuning, FirstMatchCounts) {
  const auto table = parse_tuning(kText, "t", kTransports);
  ASSERT_TRUE(table) << table.error().message;
  const GroupShape hosts{4, 4, "tcp"}, one_host{4, 1, "shm"}, larger{8, 8, "tcp"};
  EXPECT_EQ(table->find(Collective::kAllreduce, 0, hosts), "recursive_doubling");
  EXPECT_EQ(table->find(Collective::kAllreduce, 16384, hosts), "recursive_doubling");
  EXPECT_EQ(table->find(Collective::kAllreduce, 16385, hosts), "hierarchical:layers=2/2");
  EXPECT_EQ(table->find(Collective::kAllreduce, 1048577, hosts), "ring");
  EXPECT_EQ(table->find(Collective::kAllreduce, 8, one_host), "ring");
  EXPECT_EQ(table->find(Collective::kAllreduce, 8, larger), "");
  EXPECT_EQ(table->find(Collective::kBroadcast, 8, one_host), "binomial");
  EXPECT_EQ(table->find(Collective::kBroadcast, 8, hosts), "");
}

TEST(Tuning, WritesWhatItReads) {
  const auto table = parse_tuning(kText, "t", kTransports);
  ASSERT_TRUE(table);
  const auto again = parse_tuning(to_text(*table), "t", kTransports);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(*again, *table);
}

// Goal: whatever is wrong, the message has the file, the line and what is allowed.
TEST(Tuning, ErrorsNameFileAndLine) {
  const struct {
    const char* line;
    const char* says;
  } cases[] = {
      {"allreduceX ring", "collective is \"allreduceX\""},
      {"allreduce", "algorithm is \"missing\""},
      {"allreduce ranks=0 ring", "\"ranks=0\", allowed is a number from 1"},
      {"allreduce ranks=many ring", "\"ranks=many\""},
      {"allreduce size=4 ring", "\"size=4\", allowed is ranks=N"},
      {"allreduce transport=ucx ring", "\"transport=ucx\""},
      {"allreduce bytes<=16K ring", "\"bytes<=16K\""},
      {"allreduce bytes<16 ring", "\"bytes<16\""},
      {"allreduce binomial", "no algorithm \"binomial\" for allreduce"},
      {"allreduce ranks=6 hierarchical:layers=4", "product is 6"},
  };
  for (const auto& [line, says] : cases) {
    const auto table =
        parse_tuning(std::string("farandole-tuning 1\n\n") + line, "dir/my.tuning", kTransports);
    ASSERT_FALSE(table) << line;
    EXPECT_EQ(table.error().kind, ErrorKind::kInvalidArgument);
    EXPECT_NE(table.error().message.find("dir/my.tuning line 3: "), std::string::npos)
        << table.error().message;
    EXPECT_NE(table.error().message.find(says), std::string::npos) << table.error().message;
  }
  EXPECT_FALSE(parse_tuning("allreduce ring\n", "t", kTransports));
}

}  // namespace
}  // namespace farandole
