// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "farandole/farandole.hpp"
#include "unit/device/fake_device.hpp"

namespace farandole::testing {

/// The ranks of one job. They leave it side by side, as processes would.
class Contexts : public std::vector<std::unique_ptr<Context>> {
 public:
  explicit Contexts(std::vector<std::unique_ptr<Context>> made,
                    std::shared_ptr<FakeDeviceGuard> device = nullptr)
      : vector(std::move(made)), device_(std::move(device)) {}
  Contexts(Contexts&&) = default;
  ~Contexts() {
    std::vector<std::thread> leaving;
    for (auto& context : *this) leaving.emplace_back([&] { context->shutdown(); });
    for (std::thread& thread : leaving) thread.join();
  }

 private:
  std::shared_ptr<FakeDeviceGuard> device_;
};

/// On the transport that is named, or "device": in one process, all memory a fake device's.
inline Contexts make_ranks(int rank_count, const std::string& transport, bool peer_memory = true) {
  std::shared_ptr<FakeDeviceGuard> device;
  if (transport == "device") device = std::make_shared<FakeDeviceGuard>(rank_count);
  auto made = Context::inproc(rank_count, peer_memory, device ? "inproc" : transport);
  if (!made) {
    std::fprintf(stderr, "no ranks: %s\n", made.error().message.c_str());
    std::abort();
  }
  return Contexts(*std::move(made), std::move(device));
}

/// Runs `body` on one thread per rank. After `limit` it prints what every rank has in flight and
/// aborts: a hang is a failure that says where.
inline void run_ranks(Contexts& contexts, const std::function<void(Context&, Communicator&)>& body,
                      std::chrono::seconds limit = std::chrono::seconds(120)) {
  std::mutex mutex;
  std::condition_variable done;
  std::size_t left = contexts.size();
  std::vector<std::thread> threads;
  for (auto& context : contexts) {
    threads.emplace_back([&, raw = context.get()] {
      Communicator world = raw->world();
      body(*raw, world);
      const std::lock_guard lock(mutex);
      --left;
      done.notify_one();
    });
  }
  {
    std::unique_lock lock(mutex);
    if (!done.wait_for(lock, limit, [&] { return left == 0; })) {
      for (auto& context : contexts) std::fputs(context->dump().c_str(), stderr);
      std::abort();
    }
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace farandole::testing
