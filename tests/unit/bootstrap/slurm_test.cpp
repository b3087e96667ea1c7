// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/slurm.hpp"

#include <gtest/gtest.h>

namespace farandole {
namespace {

using Hosts = std::vector<std::string>;

// Goal: Slurm's short form of host lists is expanded in order, with leading zeros.
// Method: each feature alone and together.
TEST(ExpandNodeList, Expands) {
  EXPECT_EQ(expand_node_list("node7"), Hosts{"node7"});
  EXPECT_EQ(expand_node_list("a,b"), (Hosts{"a", "b"}));
  EXPECT_EQ(expand_node_list("node[03-05,9]"), (Hosts{"node03", "node04", "node05", "node9"}));
  EXPECT_EQ(expand_node_list("n[08-11]"), (Hosts{"n08", "n09", "n10", "n11"}));
  EXPECT_EQ(expand_node_list("r[1-2]n[1,3]-ib,login"),
            (Hosts{"r1n1-ib", "r1n3-ib", "r2n1-ib", "r2n3-ib", "login"}));
  EXPECT_EQ(expand_node_list("n[5]"), Hosts{"n5"});
}

// Goal: what is no such list is refused, and a short text cannot ask for much memory.
// Method: brackets, commas and numbers out of place; products of ranges.
TEST(ExpandNodeList, RefusesNonsense) {
  for (const char* bad : {"", ",", "a,", ",a", "a[", "a]", "a[]", "a[1", "a[1-]", "a[-1]", "a[2-1]",
                          "a[x]", "a[1,]", "a[[1]]", "a[1]]", "a[1-2-3]", "a[0-99999999999]",
                          "a[0-9999][0-9999]", "a[1-18446744073709551616]"}) {
    EXPECT_FALSE(expand_node_list(bad)) << bad;
  }
}

// Goal: task counts are expanded, and nonsense refused.
// Method: with and without repetition.
TEST(ExpandTaskCounts, Expands) {
  EXPECT_EQ(expand_task_counts("4"), std::vector<int>{4});
  EXPECT_EQ(expand_task_counts("2(x3),1"), (std::vector<int>{2, 2, 2, 1}));
  for (const char* bad : {"", "x", "2(x", "2(x3", "2(3)", "2(x3)1", "2,", "-1", "2(x9999999)"}) {
    EXPECT_FALSE(expand_task_counts(bad)) << bad;
  }
}

}  // namespace
}  // namespace farandole
