// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "abi/job.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "unit/abi/ranks.hpp"

// Goal: ranks find each other by a store of C functions, and what is wrong with the job or the
// store is named.
namespace farandole::testing {
namespace {

/// A store in memory, as a plugin would write one.
struct MapStore {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, std::string> values;
  farandole_status answer = FARANDOLE_OK;  // of set() and get()
  bool puts = true;                        // get() hands the value over
  std::map<std::thread::id, int> callers;

  farandole_store calls(farandole_reach reach = FARANDOLE_REACH_PROCESS) {
    farandole_store store{};
    store.struct_size = sizeof(store);
    store.data = this;
    store.set = &MapStore::set;
    store.get = &MapStore::get;
    store.add = &MapStore::add;
    store.name = "the map";
    store.reach = reach;
    return store;
  }
  static farandole_status set(void* data, const char* key, const void* value, std::size_t length) {
    MapStore& self = *static_cast<MapStore*>(data);
    const std::lock_guard lock(self.mutex);
    ++self.callers[std::this_thread::get_id()];
    self.values[key] = std::string(static_cast<const char*>(value), length);
    self.changed.notify_all();
    return self.answer;
  }
  static farandole_status get(void* data, const char* key, std::int32_t timeout_ms, void* target,
                              void (*put)(void*, const void*, std::size_t)) {
    MapStore& self = *static_cast<MapStore*>(data);
    std::unique_lock lock(self.mutex);
    ++self.callers[std::this_thread::get_id()];
    if (self.answer != FARANDOLE_OK) return self.answer;
    const bool there = self.changed.wait_for(lock, std::chrono::milliseconds(timeout_ms),
                                             [&] { return self.values.contains(key); });
    if (!there) return FARANDOLE_TIMED_OUT;
    const std::string value = self.values[key];
    if (self.puts) put(target, value.data(), value.size());
    return FARANDOLE_OK;
  }
  static farandole_status add(void* data, const char* key, std::int64_t amount, std::int64_t* sum) {
    MapStore& self = *static_cast<MapStore*>(data);
    const std::lock_guard lock(self.mutex);
    std::string& value = self.values[key];
    *sum = amount + (value.empty() ? 0 : std::stoll(value));
    value = std::to_string(*sum);
    self.changed.notify_all();
    return FARANDOLE_OK;
  }
};

farandole_job job_of(const farandole_store* store, int rank, int size) {
  farandole_job job{};
  job.struct_size = sizeof(job);
  job.rank = job.local_rank = rank;
  job.size = job.local_size = size;
  job.store = store;
  job.prefix = "test";
  job.start_timeout_ms = 60'000;
  return job;
}

void run_threads(int size, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) threads.emplace_back(body, rank);
  for (std::thread& thread : threads) thread.join();
}

// Method: three ranks as threads, twice over one store, with what the ranks sum compared. The store
// is asked by the ranks' own threads, and by nobody after they have joined.
TEST(AbiJob, FindsItsRanksByTheCallersStore) {
  MapStore map;
  const farandole_store store = map.calls();
  for (const char* const prefix : {"first", "second"}) {
    map.callers.clear();
    std::vector<std::thread::id> ranks(3);
    run_threads(3, [&](int rank) {
      ranks[static_cast<std::size_t>(rank)] = std::this_thread::get_id();
      farandole_job job = job_of(&store, rank, 3);
      std::string text = prefix;
      job.prefix = text.c_str();
      farandole_context* context = nullptr;
      farandole_communicator* world = nullptr;
      expect_ok(farandole_init_from_job(&job, &context));
      ASSERT_NE(context, nullptr);
      text.assign(text.size(), '?');  // the library has copied what it needs
      std::memset(&job, 0xff, sizeof(job));
      farandole_ranks known{};
      known.struct_size = sizeof(known);
      expect_ok(farandole_get_ranks(context, &known));
      EXPECT_EQ(known.rank, rank);
      EXPECT_EQ(known.size, 3);
      expect_ok(farandole_world(context, &world));
      std::int32_t sum = 10 * rank;
      const farandole_arguments call =
          arguments_of(FARANDOLE_ALLREDUCE, &sum, &sum, 1, FARANDOLE_INT32);
      expect_ok(farandole_run(world, &call, nullptr));
      EXPECT_EQ(sum, 30);
      expect_ok(farandole_communicator_release(world));
      expect_ok(farandole_finalize(context));
    });
    EXPECT_FALSE(map.callers.empty());
    for (const auto& [caller, calls] : map.callers) {
      EXPECT_NE(std::find(ranks.begin(), ranks.end(), caller), ranks.end()) << calls << " calls";
    }
    EXPECT_TRUE(map.values.contains(std::string(prefix) + "/rank 0"));
  }
}

// Goal: a secret that the ranks make lies in the store where the caller says that this is safe, and
// one that the caller gives in none; who may read the store arrives as it was said.
TEST(AbiJob, LeavesASecretWhereTheCallerSays) {
  struct Case {
    farandole_reach reach;
    Store::Reach means;
    int trusts;
    const char* secret;
    bool left;
  };
  for (const Case& one : {Case{FARANDOLE_REACH_SHARED, Store::Reach::kShared, 0, "known", false},
                          Case{FARANDOLE_REACH_PROCESS, Store::Reach::kProcess, 0, "known", false},
                          Case{FARANDOLE_REACH_SHARED, Store::Reach::kShared, 1, "", true},
                          Case{FARANDOLE_REACH_USER, Store::Reach::kUser, 0, "", true},
                          Case{FARANDOLE_REACH_PROCESS, Store::Reach::kProcess, 0, "", true}}) {
    MapStore map;
    const farandole_store store = map.calls(one.reach);
    run_threads(2, [&](int rank) {
      farandole_job job = job_of(&store, rank, 2);
      job.trust_store = one.trusts;
      job.secret = one.secret;
      job.secret_length = std::strlen(one.secret);
      EXPECT_EQ(abi::read_job("test", &job)->store->reach(), one.means);
      EXPECT_EQ(abi::read_job("test", &job)->secret.view(), one.secret);
      farandole_context* context = nullptr;
      expect_ok(farandole_init_from_job(&job, &context));
      expect_ok(farandole_finalize(context));
    });
    EXPECT_EQ(map.values.contains("test/secret"), one.left) << one.reach;
  }
}

// Goal: every field reaches the field of its name, and one that is zero the default.
TEST(AbiJob, FieldsGoWhereTheyBelong) {
  farandole_job job{};
  job.struct_size = sizeof(job);
  job.size = 4;
  const auto plain = abi::read_job("test", &job);
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->local_size, 1);
  EXPECT_EQ(plain->prefix, "farandole");
  EXPECT_EQ(plain->store, nullptr);
  EXPECT_TRUE(plain->secret.empty());

  job.rank = 3;
  job.local_rank = 1;
  job.local_size = 2;
  job.prefix = "prefix";
  job.id = "id";
  job.address = "address";
  job.interface = "interface";
  job.host = "host";
  job.host_id = "host id";
  job.port = 65535;
  job.timeout_ms = 10;
  job.start_timeout_ms = 20;
  const auto full = abi::read_job("test", &job);
  ASSERT_TRUE(full);
  EXPECT_EQ(full->rank, Rank{3});
  EXPECT_EQ(full->size, 4);
  EXPECT_EQ(full->local_rank, 1);
  EXPECT_EQ(full->local_size, 2);
  EXPECT_EQ(full->prefix, "prefix");
  EXPECT_EQ(full->id, "id");
  EXPECT_EQ(full->address, "address");
  EXPECT_EQ(full->interface, "interface");
  EXPECT_EQ(full->host, "host");
  EXPECT_EQ(full->host_id, "host id");
  EXPECT_EQ(full->port, 65535);
  EXPECT_EQ(full->timeout.count(), 10);
  EXPECT_EQ(full->start_timeout.count(), 20);
}

TEST(AbiJob, NamesTheFieldThatIsWrong) {
  MapStore map;
  const farandole_store good = map.calls();
  const auto refuse = [&](const auto& damage, const char* words,
                          farandole_status status = FARANDOLE_INVALID_ARGUMENT) {
    farandole_store store = good;
    farandole_job job = job_of(&store, 0, 2);
    damage(job, store);
    auto* context = reinterpret_cast<farandole_context*>(&map);
    expect_failure(farandole_init_from_job(&job, &context), status, words);
    EXPECT_EQ(context, nullptr) << words;
  };
  using Job = farandole_job;
  using Store = farandole_store;
  refuse([](Job& job, Store&) { job.struct_size = 104; }, "'job.struct_size' is 104");
  refuse([](Job& job, Store&) { job.port = 65536; }, "'job.port' is 65536");
  refuse([](Job& job, Store&) { job.trust_store = 2; }, "'job.trust_store' is 2");
  refuse([](Job& job, Store&) { job.timeout_ms = -1; }, "'job.timeout_ms' is -1");
  refuse([](Job& job, Store&) { job.start_timeout_ms = -5; }, "'job.start_timeout_ms' is -5");
  refuse([](Job& job, Store&) { job.secret_length = 1; }, "'job.secret' is null");
  refuse([](Job& job, Store&) { job.rank = 2; }, "rank");
  refuse([](Job& job, Store&) { job.size = 0; }, "size");
  refuse([](Job& job, Store&) { job.local_size = 3; }, "local_size");
  refuse([](Job& job, Store&) { job.store = nullptr; }, "ports are 0");
  refuse([](Job&, Store& store) { store.struct_size = 8; }, "'job.store.struct_size' is 8");
  refuse([](Job&, Store& store) { store.set = nullptr; }, "'job.store.set' is null");
  refuse([](Job&, Store& store) { store.get = nullptr; }, "'job.store.get' is null");
  refuse([](Job&, Store& store) { store.add = nullptr; }, "'job.store.add' is null");
  refuse([](Job&, Store& store) { store.reach = 3; }, "'job.store.reach' is 3");
  refuse([](Job&, Store& store) { store.reserved = 1; }, "'job.store.reserved' is 1");
  farandole_context* context = nullptr;
  expect_failure(farandole_init_from_job(nullptr, &context), FARANDOLE_INVALID_ARGUMENT,
                 "'job' is null");
  const Job job = job_of(&good, 0, 1);
  expect_failure(farandole_init_from_job(&job, nullptr), FARANDOLE_INVALID_ARGUMENT,
                 "'context' is null");
  struct {
    Job known = {};
    std::size_t later = 1;
  } newer;
  newer.known = job;
  newer.known.struct_size = sizeof(newer);
  expect_failure(farandole_init_from_job(&newer.known, &context), FARANDOLE_UNSUPPORTED, "older");
}

// Goal: what the store's functions answer is the status that the caller gets, with the store's name
// and the key; a value that is not handed over, or comes too late, is an error as well.
TEST(AbiJob, TellsWhatTheStoreAnswered) {
  const auto join = [](MapStore& map, int rank, farandole_status status, const char* words) {
    const farandole_store store = map.calls();
    farandole_job job = job_of(&store, rank, 2);
    job.start_timeout_ms = 50;
    farandole_context* context = nullptr;
    expect_failure(farandole_init_from_job(&job, &context), status, words);
    EXPECT_NE(last_message().find("the map"), std::string::npos) << last_message();
  };
  MapStore broken;
  broken.answer = FARANDOLE_UNSUPPORTED;
  join(broken, 0, FARANDOLE_UNSUPPORTED, "status 2");
  join(broken, 1, FARANDOLE_UNSUPPORTED, "status 2");
  MapStore strange;
  strange.answer = 99;
  join(strange, 0, FARANDOLE_INTERNAL, "status 99");
  MapStore silent;
  silent.puts = false;
  for (const char* key : {"test/rank 0", "test/secret"}) silent.values[key] = "x";
  join(silent, 1, FARANDOLE_INVALID_ARGUMENT, "did not call put()");
  MapStore empty;
  join(empty, 1, FARANDOLE_TIMED_OUT, "rank 0");
}

}  // namespace
}  // namespace farandole::testing
