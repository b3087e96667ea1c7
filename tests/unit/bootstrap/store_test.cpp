// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "farandole/store.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace farandole::testing {
namespace {

using namespace std::chrono_literals;

/// A new folder, gone with this object.
struct Folder {
  Folder() {
    std::string name = std::filesystem::temp_directory_path() / "farandole-store-XXXXXX";
    path = ::mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::filesystem::path path;
};

std::shared_ptr<Store> files_in(const std::filesystem::path& folder) {
  auto opened = FileStore::open(folder);
  EXPECT_TRUE(opened) << opened.error().message;
  return opened ? *std::move(opened) : nullptr;
}

class Stores : public ::testing::TestWithParam<bool> {
 protected:
  std::shared_ptr<Store> make() const {
    if (!GetParam()) return std::make_shared<MemoryStore>();
    return files_in(folder_.path);
  }
  Folder folder_;
};

// Goal: get() gives the bytes that set() left last, whatever they and the keys are; a key that
// nobody sets is an error of its own kind, in time.
TEST_P(Stores, ValuesAreBytes) {
  const auto store = make();
  const std::string odd("a\0b\n\xff", 5);
  for (const std::string& key : {std::string("plain"), std::string("../up"), std::string("a/b c"),
                                 std::string("a%2fb c"), odd}) {
    ASSERT_TRUE(store->set(key, "first"));
    ASSERT_TRUE(store->set(key, odd + key));
  }
  for (const std::string& key : {std::string("plain"), std::string("../up"), std::string("a/b c"),
                                 std::string("a%2fb c"), odd}) {
    const auto value = store->get(key, 0ms);
    ASSERT_TRUE(value) << value.error().message;
    EXPECT_EQ(*value, odd + key);
  }
  ASSERT_TRUE(store->set("empty", ""));
  EXPECT_EQ(*store->get("empty", 0ms), "");
  const auto none = store->get("nobody's", 1ms);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().kind, ErrorKind::kTimedOut);
  EXPECT_NE(none.error().message.find("'nobody's'"), std::string::npos) << none.error().message;
  EXPECT_FALSE(std::filesystem::exists(folder_.path / "../up")) << "a key left the folder";
}

// Goal: get() waits for a value that comes later.
TEST_P(Stores, GetWaits) {
  const auto store = make();
  std::string seen;
  std::thread reader([&] {
    auto value = store->get("late", 60s);
    if (value) seen = *std::move(value);
  });
  ASSERT_TRUE(store->set("late", "came"));
  reader.join();
  EXPECT_EQ(seen, "came");
}

// Goal: no addition is lost; each sum is given once. Method: four threads, each with a store object
// of its own where that is another one on the same files.
TEST_P(Stores, AdditionsAreCounted) {
  constexpr int kThreads = 4, kEach = 25;
  const auto shared = make();
  std::vector<std::int64_t> sums(kThreads * kEach);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const auto store = GetParam() ? make() : shared;
      for (int i = 0; i < kEach; ++i) {
        const auto sum = store->add("count", 1);
        sums[static_cast<std::size_t>(t * kEach + i)] = sum ? *sum : -1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::sort(sums.begin(), sums.end());
  for (std::size_t i = 0; i < sums.size(); ++i) ASSERT_EQ(sums[i], static_cast<int>(i) + 1);
  EXPECT_EQ(*shared->get("count", 0ms), "100");
  ASSERT_TRUE(shared->set("text", "no number"));
  EXPECT_EQ(shared->add("text", 1).error().kind, ErrorKind::kInvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(All, Stores, ::testing::Bool(),
                         [](const auto& kind) { return kind.param ? "Files" : "Memory"; });

// Goal: a secret is put only where nobody else can read it: the folder's mode and owner decide.
TEST(FileStore, ReachIsTheFoldersMode) {
  const Folder folder;
  EXPECT_EQ(files_in(folder.path)->reach(), Store::Reach::kUser);
  for (const mode_t mode : {0750u, 0705u, 0722u}) {
    ASSERT_EQ(chmod(folder.path.c_str(), mode), 0);
    EXPECT_EQ(files_in(folder.path)->reach(), Store::Reach::kShared) << mode;
  }
  ASSERT_EQ(chmod(folder.path.c_str(), 0700), 0);
  EXPECT_EQ(files_in(folder.path / "made")->reach(), Store::Reach::kUser);
  EXPECT_EQ(MemoryStore().reach(), Store::Reach::kProcess);
}

// Goal: what cannot be a folder is named.
TEST(FileStore, BadFolders) {
  for (const char* path : {"/no/such/place", "/dev/null"}) {
    const auto store = FileStore::open(path);
    ASSERT_FALSE(store);
    EXPECT_EQ(store.error().kind, ErrorKind::kInvalidArgument);
    EXPECT_NE(store.error().message.find(path), std::string::npos) << store.error().message;
  }
}

}  // namespace
}  // namespace farandole::testing
