// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
// Goal: a schedule that a person wrote is an algorithm once it is registered, for its own number of
// ranks and root alone; what is wrong with a file is said with the file and the place.
// Method: files written here, found again through the functions that all callers use.
#include "algorithms/registered.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "algorithms/spec.hpp"
#include "schedule/text.hpp"

namespace farandole {
namespace {

/// Rank `root` of two sends its data to the other.
std::string handed(const std::string& name, int root, const std::string& order = "") {
  const auto at = [](int rank) {
    return "  when " + std::to_string(rank) + " <= r < " + std::to_string(rank + 1) + ": ";
  };
  return "farandole schedule 1\ncollective broadcast\nalgorithm " + name + "\nranks 2\nroot " +
         std::to_string(root) + "\nchunks 1\nscratch 0\nlanes 1\n" + order + "round\n" + at(root) +
         "send in[0] to 1 - r\n" + at(root) + "then copy out[0] = in[0]\n" + at(1 - root) +
         "receive out[0] from 1 - r\nend\n";
}

class Written : public testing::Test {
 protected:
  Written() : path_(testing::TempDir() + "written." + std::to_string(getpid())) {}
  ~Written() override { std::filesystem::remove(path_); }
  Result<VerifiedSchedule> load(const std::string& text) const {
    std::ofstream(path_) << text;
    return load_schedule(path_);
  }
  const std::string path_;
};

TEST_F(Written, IsAnAlgorithmOnceItIsRegistered) {
  const auto loaded = load(handed("found_again", 0));
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_FALSE(find_algorithm(Collective::kBroadcast, "found_again"));
  const auto row = register_schedule(*loaded);
  ASSERT_TRUE(row) << row.error().message;
  EXPECT_EQ(*find_algorithm(Collective::kBroadcast, "found_again"), *row);
  EXPECT_FALSE(find_algorithm(Collective::kReduce, "found_again"));
  EXPECT_EQ(index_of(**row), kRegistered);
  const auto built = build_schedule(Collective::kBroadcast, "found_again", 2, 0);
  ASSERT_TRUE(built) << built.error().message;
  EXPECT_EQ(to_text(*built), to_text(loaded->schedule()));
  EXPECT_EQ(*register_schedule(*loaded), *row) << "registering it again changes nothing";
}

TEST_F(Written, IsForItsRanksAndRootAlone) {
  ASSERT_TRUE(register_schedule(*load(handed("rooted", 1))));
  const auto message = [](std::int64_t ranks, std::int64_t root) {
    const auto built = build_schedule(Collective::kBroadcast, "rooted", ranks, root);
    const auto parsed = parse_spec(Collective::kBroadcast, "rooted", ranks, root);
    EXPECT_EQ(bool(built), bool(parsed));
    return built ? std::string("built") : built.error().message;
  };
  EXPECT_EQ(message(2, 1), "built");
  EXPECT_EQ(message(2, 0),
            "schedule \"rooted\" for broadcast: asked for is 2 ranks and root 0, allowed is 2 "
            "ranks and root 1");
  EXPECT_NE(message(3, 1).find("asked for is 3 ranks and root 1"), std::string::npos);
  ASSERT_TRUE(register_schedule(*load(handed("rooted", 0))));
  EXPECT_EQ(message(2, 0), "built");
  EXPECT_EQ(message(2, 1), "built");
}

TEST_F(Written, RootIsARankAlsoWhereRanksHaveAnOrder) {
  const auto loaded = load(handed("turned", 0, "order 1 0\n"));
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(root_rank(loaded->schedule()), 1);
  ASSERT_TRUE(register_schedule(*loaded));
  EXPECT_TRUE(build_schedule(Collective::kBroadcast, "turned", 2, 1));
  EXPECT_FALSE(build_schedule(Collective::kBroadcast, "turned", 2, 0));
}

TEST_F(Written, NameMeansOneThing) {
  const auto library = register_schedule(*load(handed("direct", 0)));
  ASSERT_FALSE(library);
  EXPECT_NE(library.error().message.find("the name of an algorithm of the library"),
            std::string::npos);
  ASSERT_TRUE(register_schedule(*load(handed("one_thing", 0))));
  std::string other = handed("one_thing", 0);
  other.replace(other.find("scratch 0"), 9, "scratch 1");
  const auto again = register_schedule(*load(other));
  ASSERT_FALSE(again);
  EXPECT_NE(again.error().message.find("another schedule for 2 ranks and root 0"),
            std::string::npos)
      << again.error().message;
}

TEST_F(Written, HasNoOptionsAndNoFixedOrder) {
  const std::string text =
      "farandole schedule 1\ncollective allreduce\nalgorithm alone\nranks 1\nroot 0\nchunks 1\n"
      "scratch 0\nlanes 1\nround\n  copy out[0] = in[0]\nend\n";
  ASSERT_TRUE(register_schedule(*load(text)));
  EXPECT_TRUE(build_schedule(Collective::kAllreduce, "alone", 1, 0));
  EXPECT_FALSE(build_schedule(Collective::kAllreduce, "alone:chunks=2", 1, 0));
  const auto fixed = build_schedule(Collective::kAllreduce, "alone", 1, 0, true);
  ASSERT_FALSE(fixed);
  EXPECT_EQ(fixed.error().kind, ErrorKind::kInvalidArgument);
}

TEST_F(Written, ErrorsNameTheFileAndThePlace) {
  const auto message = [&](const std::string& text) {
    const auto loaded = load(text);
    EXPECT_FALSE(loaded);
    EXPECT_EQ(loaded.error().kind, ErrorKind::kInvalidArgument);
    return loaded.error().message;
  };
  std::string text = handed("broken", 0);
  EXPECT_EQ(message(text.substr(0, text.rfind("end"))),
            "schedule file '" + path_ +
                "': schedule, line 12: expected the \"end\" of a round, found the end");
  text.replace(text.find("to 1 - r"), 8, "to 0 + r");
  const std::string unproved = message(text);
  EXPECT_EQ(unproved.rfind("schedule file '" + path_ +
                               "': the proof fails: broadcast broken over "
                               "2 ranks: rank 0, round 0: ",
                           0),
            0u)
      << unproved;
  const auto absent = load_schedule(path_ + ".absent");
  ASSERT_FALSE(absent);
  EXPECT_NE(absent.error().message.find("no such file"), std::string::npos);
  const auto folder = load_schedule(testing::TempDir());
  ASSERT_FALSE(folder);
  EXPECT_NE(folder.error().message.find("allowed is a regular file"), std::string::npos);
  std::ofstream(path_) << handed("long", 0);
  std::filesystem::resize_file(path_, kScheduleBytesMax + 1);
  EXPECT_FALSE(load_schedule(path_));
}

}  // namespace
}  // namespace farandole
