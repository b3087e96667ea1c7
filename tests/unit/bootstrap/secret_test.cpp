// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/secret.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "unit/bootstrap/variables.hpp"

namespace farandole::test {
namespace {

/// A folder of the test's own, with FARANDOLE_* unset.
class Secret : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/secret-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text, mode_t mode) {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path) << text;
    chmod(path.c_str(), mode);
    return path;
  }
  std::string error_of(const std::string& path) {
    Environment::replace_by({{"FARANDOLE_SECRET_FILE", path}});
    const auto secret = job_secret();
    if (secret) return "";
    EXPECT_EQ(secret.error().kind, ErrorKind::kInvalidArgument);
    return secret.error().message;
  }

  std::string folder_;
  Environment environment_{{}};
};

// Goal: the variable wins, then the named file; line ends at the end do not count.
// Method: set both, then one.
TEST_F(Secret, ComesFromTheVariableOrTheFile) {
  const std::string path = write("file", "from the file\n", 0600);
  Environment::replace_by({{"FARANDOLE_SECRET", "direct"}, {"FARANDOLE_SECRET_FILE", path}});
  EXPECT_EQ(*job_secret(), "direct");
  Environment::replace_by({{"FARANDOLE_SECRET_FILE", path}});
  EXPECT_EQ(*job_secret(), "from the file");
}

// Goal: a file that others could read or write is no secret, and the message says what to do.
// Method: every way in which a file can be unfit; the message never contains the secret.
TEST_F(Secret, RefusesUnfitFiles) {
  for (const mode_t mode : {0644, 0660, 0602, 0700, 0640}) {
    const std::string message = error_of(write("file", "hidden", mode));
    EXPECT_NE(message.find("0600"), std::string::npos) << message;
    EXPECT_EQ(message.find("hidden"), std::string::npos) << message;
  }
  EXPECT_EQ(error_of(write("good", "x", 0600)), "");
  EXPECT_EQ(error_of(write("read only", "x", 0400)), "");
  EXPECT_NE(error_of(write("empty", "\n", 0600)).find("empty"), std::string::npos);
  EXPECT_NE(error_of(write("long", std::string(5000, 'x'), 0600)).find("4096"), std::string::npos);
  EXPECT_NE(error_of(folder_ + "/missing").find("missing"), std::string::npos);
  EXPECT_NE(error_of(folder_).find("plain file"), std::string::npos);
  const std::string pipe = folder_ + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_NE(error_of(pipe).find("plain file"), std::string::npos);
  if (geteuid() == 0) {
    const std::string foreign = write("foreign", "x", 0600);
    ASSERT_EQ(chown(foreign.c_str(), 12345, 12345), 0);
    EXPECT_NE(error_of(foreign).find("belongs to user 12345"), std::string::npos);
  }
}

// Goal: processes that need the user's own file at the same time all end with one secret.
// Method: many threads race for a file that is not there; then look at what was left behind.
TEST_F(Secret, IsCreatedOnce) {
  for (int round = 0; round < 20; ++round) {
    const std::string home = folder_ + "/" + std::to_string(round);
    Environment::replace_by({{"XDG_CONFIG_HOME", home}});
    std::vector<std::string> secrets(8);
    std::vector<std::thread> threads;
    for (std::string& secret : secrets) {
      threads.emplace_back([&secret] {
        auto got = job_secret();
        secret = got ? *got : "error: " + got.error().message;
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(std::set(secrets.begin(), secrets.end()).size(), 1u);
    EXPECT_EQ(secrets[0].size(), 64u) << secrets[0];
    struct stat status;
    ASSERT_EQ(stat((home + "/farandole/secret").c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, 0600u);
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(home + "/farandole"), {}), 1);
  }
}

// Goal: without XDG_CONFIG_HOME the file is below the home directory.
// Method: look for it there, and read the same secret again.
TEST_F(Secret, IsBelowHome) {
  Environment::replace_by({{"HOME", folder_}});
  const auto first = job_secret();
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/.config/farandole/secret"));
  EXPECT_EQ(*job_secret(), *first);
}

// Goal: random bytes are as many as asked for and differ from call to call.
// Method: ask for several lengths, twice.
TEST(RandomBytes, AreFresh) {
  EXPECT_EQ(random_bytes(0)->size(), 0u);
  for (const std::size_t count : {16u, 32u, 1000u}) {
    EXPECT_EQ(random_bytes(count)->size(), count);
    EXPECT_NE(*random_bytes(count), *random_bytes(count));
  }
}

}  // namespace
}  // namespace farandole::test
