// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/meeting.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "bootstrap/complete.hpp"
#include "unit/bootstrap/ranks.hpp"

namespace farandole::test {
namespace {

/// A store that others can read, and what was ever put into it.
class OpenStore final : public Store {
 public:
  Result<void> set(const std::string& key, std::string_view value) override {
    {
      const std::lock_guard lock(mutex_);
      seen_.push_back(key + "=" + std::string(value));
    }
    return values_.set(key, value);
  }
  Result<std::string> get(const std::string& key, std::chrono::milliseconds timeout) override {
    return values_.get(key, timeout);
  }
  Result<std::int64_t> add(const std::string& key, std::int64_t amount) override {
    return values_.add(key, amount);
  }
  std::string name() const override { return "the open store"; }
  std::string all() const {
    const std::lock_guard lock(mutex_);
    std::string text;
    for (const std::string& one : seen_) text += one + "\n";
    return text;
  }

 private:
  MemoryStore values_;
  mutable std::mutex mutex_;
  std::vector<std::string> seen_;
};

/// A store that does not work.
class BrokenStore final : public Store {
 public:
  Result<void> set(const std::string&, std::string_view) override { return broken(); }
  Result<std::string> get(const std::string&, std::chrono::milliseconds) override {
    return broken();
  }
  Result<std::int64_t> add(const std::string&, std::int64_t) override { return broken(); }
  std::string name() const override { return "the broken store"; }

 private:
  static Error broken() { return {ErrorKind::kInternal, "its disk is full."}; }
};

Job job_over(std::shared_ptr<Store> store, int rank, int size) {
  Job job;
  job.rank = Rank{rank};
  job.size = size;
  job.store = std::move(store);
  job.start_timeout = kPatience;
  job.timeout = 30s;
  return job;
}

/// The ranks of one job over a store, all in this process. A rank for which `adjust` says false
/// does not come.
struct Outcome {
  std::vector<std::unique_ptr<Session>> sessions;
  std::vector<Error> errors;

  std::string text() const {
    std::string all;
    for (const Error& error : errors) all += error.message;
    return all;
  }
  void leave() {
    on_threads(static_cast<int>(sessions.size()), [&](int rank) {
      if (auto& session = sessions[static_cast<std::size_t>(rank)]) session->leave("");
    });
  }
};

Outcome start(const std::shared_ptr<Store>& store, int size,
              const std::function<bool(Job&)>& adjust = {}) {
  Outcome outcome{std::vector<std::unique_ptr<Session>>(static_cast<std::size_t>(size)),
                  std::vector<Error>(static_cast<std::size_t>(size))};
  on_threads(size, [&](int rank) {
    const auto index = static_cast<std::size_t>(rank);
    Job job = job_over(store, rank, size);
    if (adjust && !adjust(job)) return;
    auto whole = complete(job);
    auto session = whole ? Session::start(*whole, {}, {}) : whole.error();
    if (session) {
      outcome.sessions[index] = *std::move(session);
    } else {
      outcome.errors[index] = session.error();
    }
  });
  return outcome;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Goal: nothing but a store brings ranks together, which then have one another's sockets; two
// such jobs live side by side, and one store serves many generations, each behind its prefix.
TEST(Meeting, StoresBringRanksTogether) {
  std::string folder = std::filesystem::temp_directory_path() / "farandole-meeting-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::vector<std::shared_ptr<Store>> stores = {std::make_shared<MemoryStore>(),
                                                      *FileStore::open(folder)};
  std::vector<Outcome> living;
  for (const auto& store : stores) {
    for (const std::string prefix : {"epoch 1", "epoch 2"}) {
      living.push_back(start(store, 3, [&](Job& job) {
        job.prefix = prefix;
        return true;
      }));
      ASSERT_EQ(living.back().text(), "");
    }
  }
  for (Outcome& job : living) {
    on_threads(3, [&](int rank) {
      Session& self = *job.sessions[static_cast<std::size_t>(rank)];
      ASSERT_EQ(self.members().size(), 3u);
      EXPECT_EQ(self.members()[2].local_rank, 2);
      EXPECT_TRUE(self.begin(Deadline::after(kPatience)));
      const auto socket = rank == 0   ? self.open(Rank{2}, "test", Deadline::after(kPatience))
                          : rank == 2 ? self.accept(Rank{0}, "test", Deadline::after(kPatience))
                                      : Result<int>(-1);
      ASSERT_TRUE(socket) << socket.error().message;
      if (*socket >= 0) self.close(*socket);
    });
  }
  for (Outcome& job : living) job.leave();
  std::filesystem::remove_all(folder);
}

// Goal: a store that others can read never has the secret; the ranks meet there all the same, and
// listen where other hosts reach them.
TEST(Meeting, OpenStoresDoNotGetTheSecret) {
  const std::string secret = "a secret that nobody may see";
  const auto store = std::make_shared<OpenStore>();
  Outcome job = start(store, 3, [&](Job& one) {
    one.secret = Secret(secret);
    return true;
  });
  EXPECT_EQ(job.text(), "");
  job.leave();
  EXPECT_FALSE(contains(store->all(), secret));
  EXPECT_FALSE(contains(store->all(), "/secret="));
  EXPECT_TRUE(contains(store->all(), "farandole/rank 0=")) << store->all();
}

// Goal: a store that only this process or this user reads has a secret of its own per start.
TEST(Meeting, TrustedStoresHaveASecretEach) {
  const auto store = std::make_shared<MemoryStore>();
  for (const std::string prefix : {"a", "b"}) {
    Outcome job = start(store, 2, [&](Job& one) {
      one.prefix = prefix;
      return true;
    });
    EXPECT_EQ(job.text(), "");
    job.leave();
  }
  const auto first = store->get("a/secret", 0ms), second = store->get("b/secret", 0ms);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->size(), 64u);
  EXPECT_NE(*first, *second);
}

// Goal: who does not know the secret does not get in, and is told so far as it can be.
TEST(Meeting, TheSecretCountsNotTheStore) {
  const auto store = std::make_shared<OpenStore>();
  Outcome job = start(store, 2, [&](Job& one) {
    one.secret = Secret(one.rank == Rank{0} ? "the right one" : "a wrong one");
    one.start_timeout = 300ms;
    return true;
  });
  EXPECT_EQ(job.errors[0].kind, ErrorKind::kTimedOut);
  EXPECT_TRUE(contains(job.errors[0].message, "rank 1 of 2 did not come")) << job.text();
  EXPECT_EQ(job.errors[1].kind, ErrorKind::kTimedOut);
  EXPECT_TRUE(contains(job.errors[1].message, "does not know this job's secret")) << job.text();
}

// Goal: errors name the rank that has not come, on every rank that has, whoever it is.
TEST(Meeting, MissingRanksAreNamed) {
  for (const int missing : {0, 2}) {
    const auto store = std::make_shared<MemoryStore>();
    Outcome job = start(store, 3, [&](Job& one) {
      one.start_timeout = 300ms;
      return one.rank != Rank{missing};
    });
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == missing) continue;
      const Error& error = job.errors[static_cast<std::size_t>(rank)];
      EXPECT_EQ(error.kind, ErrorKind::kTimedOut);
      const bool named = contains(error.message, "rank " + std::to_string(missing)) &&
                         contains(error.message, "did not come") &&
                         contains(error.message, "within 0.3 s");
      EXPECT_TRUE(named) << error.message;
    }
    // Who comes after that hears it at once where rank 0 has left word.
    if (missing == 0) continue;
    Job late = job_over(store, missing, 3);
    const auto told = Session::start(*complete(late), {}, {});
    ASSERT_FALSE(told);
    EXPECT_TRUE(contains(told.error().message, "did not come")) << told.error().message;
  }
}

// Goal: what keeps rank 0 from starting is told to all; a prefix is used once.
TEST(Meeting, FailuresOfRank0AreTold) {
  const auto store = std::make_shared<MemoryStore>();
  Outcome job = start(store, 2, [&](Job& one) {
    if (one.rank == Rank{0}) one.interface = "no such interface";
    return true;
  });
  for (const Error& error : job.errors) {
    EXPECT_EQ(error.kind, ErrorKind::kInvalidArgument);
    EXPECT_TRUE(contains(error.message, "no such interface")) << error.message;
  }
  const auto again = Session::start(*complete(job_over(store, 0, 2)), {}, {});
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().kind, ErrorKind::kInvalidArgument);
  EXPECT_TRUE(contains(again.error().message, "prefix 'farandole'")) << again.error().message;
}

// Goal: what goes wrong in the store is told, and so is a word there that is not rank 0's.
TEST(Meeting, BadStores) {
  Outcome job = start(std::make_shared<BrokenStore>(), 2, [](Job& one) {
    one.secret = Secret("known");
    return true;
  });
  for (int rank = 0; rank < 2; ++rank) {
    const Error& error = job.errors[static_cast<std::size_t>(rank)];
    EXPECT_EQ(error.kind, ErrorKind::kInternal);
    EXPECT_TRUE(contains(error.message, "rank " + std::to_string(rank)) &&
                contains(error.message, "the broken store") &&
                contains(error.message, "its disk is full"))
        << error.message;
  }
  for (const std::string& word : {std::string(), std::string("\1"), std::string("\2"),
                                  std::string("nonsense"), std::string(1000, '\1')}) {
    const auto store = std::make_shared<MemoryStore>();
    ASSERT_TRUE(store->set("farandole/rank 0", word));
    const auto met = Session::start(*complete(job_over(store, 1, 2)), {}, {});
    ASSERT_FALSE(met);
    EXPECT_EQ(met.error().kind, ErrorKind::kInternal) << met.error().message;
  }
}

// Goal: every field that makes no sense is named, with what is allowed.
TEST(Complete, BadFieldsAreNamed) {
  const auto store = std::make_shared<MemoryStore>();
  const std::vector<std::pair<std::string, std::function<void(Job&)>>> cases = {
      {"size is 0", [](Job& job) { job.size = 0; }},
      {"rank is 2", [](Job& job) { job.rank = Rank{2}; }},
      {"rank is -1", [](Job& job) { job.rank = Rank{-1}; }},
      {"local_size is 3", [](Job& job) { job.local_size = 3; }},
      {"local_rank is -1", [](Job& job) { job.local_rank = -1; }},
      {"prefix is 0 bytes", [](Job& job) { job.prefix.clear(); }},
      {"start_timeout is -5 ms", [](Job& job) { job.start_timeout = -5ms; }},
      {"neither a store nor an address", [](Job& job) { job.store.reset(); }},
      {"ports are 0",
       [](Job& job) {
         job.store.reset();
         job.address = "localhost";
       }},
  };
  for (const auto& [part, spoil] : cases) {
    Job job = job_over(store, 1, 2);
    spoil(job);
    const auto whole = complete(job);
    ASSERT_FALSE(whole) << part;
    EXPECT_EQ(whole.error().kind, ErrorKind::kInvalidArgument);
    EXPECT_TRUE(contains(whole.error().message, part)) << whole.error().message;
  }
}

}  // namespace
}  // namespace farandole::test
