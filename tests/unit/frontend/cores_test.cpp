// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "frontend/cores.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

namespace farandole::testing {
namespace {

std::vector<CoreShare> shares(const std::vector<std::string>& texts) {
  std::vector<CoreShare> parsed;
  for (const std::string& text : texts) {
    const auto share = CoreShare::parse(text);
    EXPECT_TRUE(share) << text;
    if (share) parsed.push_back(*share);
  }
  return parsed;
}

/// The most ranks that have a core to themselves, by trying everything.
int tried_out(const std::vector<CoreShare>& ranks, std::size_t rank, std::vector<int>& taken) {
  if (rank == ranks.size()) return 0;
  int best = tried_out(ranks, rank + 1, taken);
  for (const int core : ranks[rank].cores) {
    if (std::ranges::count(taken, core) > 0) continue;
    taken.push_back(core);
    best = std::max(best, 1 + tried_out(ranks, rank + 1, taken));
    taken.pop_back();
  }
  return best;
}

TEST(CoreShare, TextIsReadBack) {
  for (const char* const text : {"0", "5", "0-3", "0,2,4", "0-1,3,7-9", "0-1023", "1 2 /a b"}) {
    const auto share = CoreShare::parse(text);
    ASSERT_TRUE(share) << text;
    EXPECT_EQ(share->text(), text);
  }
  for (const char* const text : {"", "x", "-1", "1-", "3-1", "1,", "1,1", "0-70000", "99999999999",
                                 "1 ", "1 2", "1 2 ", "1 0 /a", "1 x /a"}) {
    EXPECT_FALSE(CoreShare::parse(text)) << text;
  }
}

// Goal: ranks share exactly if there is no core for each. Method: what launchers do, a case in
// which the masks together are large enough but not for the two ranks on one core, limits of
// containers.
TEST(Cores, SharedWhereNotEachCanHaveOne) {
  const auto cores = [](const std::vector<std::string>& texts) { return cores_of(shares(texts)); };
  EXPECT_EQ(cores({"0", "1", "2", "3"}), 4);
  EXPECT_EQ(cores({"0-7", "0-7"}), 8);
  EXPECT_EQ(cores({"0-1", "0-1", "0-1"}), 2);
  EXPECT_EQ(cores({"0", "0"}), 1);
  EXPECT_EQ(cores({"0", "0", "1-3"}), 2) << "four cores for three ranks, and yet";
  EXPECT_EQ(cores({"0-1", "0", "1-2"}), 3) << "the first rank takes what the others leave";
  EXPECT_EQ(cores({"0-7 1 /pod", "0-7 1 /pod"}), 1);
  EXPECT_EQ(cores({"0-7 1 /one", "0-7 1 /two"}), 2);
  EXPECT_EQ(cores({"0-7 4 /pod", "0-7 4 /pod"}), 4);
}

// Goal: the count agrees with trying everything. Method: random masks; the seed is printed.
TEST(Cores, AgreesWithTryingEverything) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 2000; ++round) {
    std::vector<CoreShare> ranks(1 + random() % 5);
    for (CoreShare& rank : ranks) {
      for (int core = 0; core < 6; ++core) {
        if (random() % 3 == 0) rank.cores.push_back(core);
      }
      if (rank.cores.empty()) rank.cores = {0};
    }
    std::vector<int> taken;
    const int best = tried_out(ranks, 0, taken), size = static_cast<int>(ranks.size());
    EXPECT_EQ(cores_of(ranks) < size, best < size);
    EXPECT_TRUE(best == size || cores_of(ranks) == std::max(1, best));
  }
}

TEST(Cores, EachHostByItself) {
  const auto member = [](int rank, const char* host, const char* entry) {
    Member made{Rank{rank}, 0, host, host, 1, {}};
    if (*entry != '\0') made.record[kCoresEntry] = entry;
    return made;
  };
  const auto cores = cores_by_host(
      {member(0, "a", "0"), member(1, "b", "0-3"), member(2, "a", "0"), member(3, "c", "")});
  EXPECT_EQ(cores, (std::map<std::string, int>{{"a", 1}, {"b", 4}}));
}

class Groups : public ::testing::Test {
 protected:
  Groups()
      : folder_(std::filesystem::temp_directory_path() /
                ("farandole-cores-test-" + std::to_string(getpid()))) {}
  ~Groups() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((folder_ / path).parent_path());
    std::ofstream(folder_ / path) << text << '\n';
  }
  CoreShare read(const std::string& membership) {
    write("membership", membership);
    return own_core_share((folder_ / "membership").string(), (folder_ / "groups").string());
  }

 private:
  std::filesystem::path folder_;
};

// Goal: the limit is the tightest of the group and its parents, in both versions of control groups,
// and as a container sees them, whose path is the host's.
TEST_F(Groups, LimitIsTheTightest) {
  EXPECT_EQ(read("0::/none").limit, 0);
  write("groups/job/cpu.max", "250000 100000");
  write("groups/job/task/cpu.max", "max 100000");
  CoreShare share = read("0::/job/task");
  EXPECT_EQ(std::pair(share.limit, share.group), std::pair(2, std::string("/job")));
  write("groups/cpu.max", "50000 100000");
  share = read("0::/elsewhere/on/the/host");
  EXPECT_EQ(std::pair(share.limit, share.group), std::pair(1, std::string("/")));
  write("groups/cpu/old/cpu.cfs_quota_us", "400000");
  write("groups/cpu/old/cpu.cfs_period_us", "100000");
  write("groups/cpu/free/cpu.cfs_quota_us", "-1");
  write("groups/cpu/free/cpu.cfs_period_us", "100000");
  EXPECT_EQ(read("4:cpu,cpuacct:/old").limit, 4);
  EXPECT_EQ(read("4:cpuset:/old\n3:cpu:/free").limit, 0);
}

TEST(CoreShare, OwnIsTheAffinityMask) {
  cpu_set_t set;
  ASSERT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  const CoreShare own = own_core_share();
  EXPECT_EQ(static_cast<int>(own.cores.size()), CPU_COUNT(&set));
  for (const int core : own.cores) EXPECT_TRUE(CPU_ISSET(static_cast<std::size_t>(core), &set));
}

}  // namespace
}  // namespace farandole::testing
