// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/secret.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <thread>

#include "bootstrap/handshake.hpp"
#include "bootstrap/socket.hpp"
#include "unit/bootstrap/children.hpp"
#include "unit/bootstrap/variables.hpp"

namespace farandole::test {
namespace {

/// A folder of the test's own, with FARANDOLE_* unset.
class JobSecret : public testing::Test {
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
TEST_F(JobSecret, ComesFromTheVariableOrTheFile) {
  const std::string path = write("file", "from the file\n", 0600);
  Environment::replace_by({{"FARANDOLE_SECRET", "direct"}, {"FARANDOLE_SECRET_FILE", path}});
  EXPECT_EQ(job_secret()->view(), "direct");
  Environment::replace_by({{"FARANDOLE_SECRET_FILE", path}});
  EXPECT_EQ(job_secret()->view(), "from the file");
}

// Goal: a file that others could read or write is no secret, and the message says what to do.
// Method: every way in which a file can be unfit; the message never contains the secret.
TEST_F(JobSecret, RefusesUnfitFiles) {
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
TEST_F(JobSecret, IsCreatedOnce) {
  for (int round = 0; round < 20; ++round) {
    const std::string home = folder_ + "/" + std::to_string(round);
    Environment::replace_by({{"XDG_CONFIG_HOME", home}});
    std::vector<std::string> secrets(8);
    std::vector<std::thread> threads;
    for (std::string& secret : secrets) {
      threads.emplace_back([&secret] {
        auto got = job_secret();
        secret = got ? std::string(got->view()) : "error: " + got.error().message;
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
TEST_F(JobSecret, IsBelowHome) {
  Environment::replace_by({{"HOME", folder_}});
  const auto first = job_secret();
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/.config/farandole/secret"));
  EXPECT_EQ(job_secret()->view(), first->view());
}

/// A mapping of this process by /proc/self/smaps; `flags` are between spaces.
struct Mapping {
  std::uintptr_t begin = 0, end = 0;
  std::string rights, name, flags;
  bool has(const std::string& flag) const { return flags.find(" " + flag + " ") != flags.npos; }
};

std::vector<Mapping> mappings() {
  std::vector<Mapping> all;
  std::ifstream file("/proc/self/smaps");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    Mapping one;
    char dash;
    std::string offset, device, inode;
    if (line.starts_with("VmFlags:")) {
      all.back().flags = line.substr(8) + " ";
    } else if (words >> std::hex >> one.begin >> dash >> one.end >> one.rights && dash == '-') {
      words >> offset >> device >> inode >> one.name;
      all.push_back(one);
    }
  }
  return all;
}

Mapping mapping_of(const void* address) {
  for (const Mapping& one : mappings()) {
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    if (one.begin <= at && at < one.end) return one;
  }
  return {};
}

// Goal: a secret is in no core and in no forked child, as are its copies, and it goes with the last
// of them. Method: the flags of its mapping by the system, and what a child reads.
TEST(SecretMemory, IsInNoCoreAndNoChild) {
  std::optional<Secret> first(std::in_place, std::string(5000, 'x'));
  const Secret second = *first;
  const Mapping mapping = mapping_of(first->view().data());
  EXPECT_TRUE(mapping.has("dd")) << mapping.flags;
  EXPECT_TRUE(mapping.has("wf")) << mapping.flags;
  const auto sees_zeros = [&] { return std::ranges::count(second.view(), '\0') == 5000 ? 0 : 1; };
  EXPECT_EQ(status_of_child(sees_zeros), 0) << "the child read the secret";
  first.reset();
  EXPECT_EQ(std::ranges::count(second.view(), 'x'), 5000);
  EXPECT_TRUE(Secret().empty());
  EXPECT_TRUE(Secret("").view().empty());
}

/// How often a process's memory that a core would hold has `size` bytes at `wanted`, each xor
/// `mask`; read through the system, for pages may be guarded.
int count_in_core(const unsigned char* wanted, std::size_t size, unsigned char mask) {
  constexpr std::size_t kPiece = 1 << 20;
  const Descriptor memory(open("/proc/self/mem", O_RDONLY | O_CLOEXEC));
  static std::vector<unsigned char> piece(kPiece);
  int count = 0;
  for (const Mapping& one : mappings()) {
    if (!one.rights.starts_with("rw") || one.has("dd") || one.end - one.begin > (1u << 30))
      continue;
    for (std::uintptr_t at = one.begin; at < one.end; at += kPiece - size) {
      const auto own = reinterpret_cast<std::uintptr_t>(piece.data());
      if (at < own + kPiece && own < at + kPiece) continue;
      const ssize_t got =
          pread(memory.fd(), piece.data(), std::min(kPiece, one.end - at), static_cast<off_t>(at));
      for (ssize_t i = 0; i + static_cast<ssize_t>(size) <= got; ++i) {
        std::size_t same = 0;
        while (same < size && (piece[static_cast<std::size_t>(i) + same] ^ mask) == wanted[same]) {
          ++same;
        }
        count += same == size ? 1 : 0;
      }
    }
  }
  return count;
}

// Goal: reading the secret, making it and proving that one knows it leave no copy of it behind, nor
// of the pads that HMAC makes of it. Method: the user's own file is made and read, a handshake run,
// and what a core would hold searched for a part of the secret, which this test keeps inverted.
TEST_F(JobSecret, LeavesNoCopies) {
  Environment::replace_by({{"XDG_CONFIG_HOME", folder_}});
  auto secret = job_secret();
  ASSERT_TRUE(secret) << secret.error().message;
  {
    ClientHandshake client(*secret, std::string(kNonceBytes, 'c'), Identity{});
    ServerHandshake server(*secret, std::string(kNonceBytes, 's'));
    server.feed(client.take_output());
    client.feed(server.take_output());
    server.feed(client.take_output().substr(0, server.wanted()));
  }
  constexpr std::size_t kPart = 24;
  std::array<unsigned char, kPart> inverted;
  for (std::size_t i = 0; i < kPart; ++i) {
    inverted[i] = static_cast<unsigned char>(~secret->view()[20 + i]);
  }
  for (const int mask : {0x00, 0x36, 0x5c}) {
    const auto own = static_cast<unsigned char>(mask ^ 0xff);
    EXPECT_EQ(count_in_core(inverted.data(), kPart, own), 0) << "mask " << mask;
  }
  EXPECT_GE(count_in_core(inverted.data(), kPart, 0), 1) << "the search finds nothing";
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
