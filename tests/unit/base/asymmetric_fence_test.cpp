// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "base/asymmetric_fence.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <new>
#include <thread>

namespace farandole::testing {
namespace {

constexpr int kRounds = 20'000;

/// What two processes share: one line each, and where they meet.
struct Shared {
  alignas(64) std::atomic<int> frequent{0};
  alignas(64) std::atomic<int> rare{0};
  alignas(64) std::atomic<int> arrived{0};
  alignas(64) std::array<bool, kRounds> frequent_saw{};
};

/// Both sides leave it at about the same time. False if the other one does not come.
bool meet(Shared& shared, int round) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  shared.arrived.fetch_add(1);
  for (int look = 1; shared.arrived.load() < 2 * round; ++look) {
    if (look % 1000 != 0) continue;
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();  // there may be one core
  }
  return true;
}

// Goal: of two sides that store and then look for the other's store, one sees it, also across
// processes. Method: a child is the frequent side, this process the rare one; both at once, again
// and again. Without heavy(), x86 shows both sides an old value in some of the rounds.
TEST(AsymmetricFence, OneSideSeesTheOther) {
  void* memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  Shared& shared = *new (memory) Shared;
  AsymmetricFence::enable();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    AsymmetricFence::enable();
    for (int round = 1; round <= kRounds; ++round) {
      if (!meet(shared, 2 * round - 1)) _exit(1);
      AsymmetricFence::store(shared.frequent, round);
      shared.frequent_saw[static_cast<std::size_t>(round - 1)] =
          shared.rare.load(std::memory_order_relaxed) == round;
      if (!meet(shared, 2 * round)) _exit(1);
    }
    _exit(0);
  }
  int missed = 0, met = 0;
  for (int round = 1; round <= kRounds && meet(shared, 2 * round - 1); ++round, ++met) {
    shared.rare.store(round, std::memory_order_seq_cst);
    AsymmetricFence::heavy();
    const bool saw = shared.frequent.load(std::memory_order_relaxed) == round;
    if (!meet(shared, 2 * round)) break;
    missed += !saw && !shared.frequent_saw[static_cast<std::size_t>(round - 1)] ? 1 : 0;
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(met, kRounds);
  EXPECT_EQ(missed, 0);
  munmap(memory, sizeof(Shared));
}

// Goal: a job that must do without the fence does not take it from the jobs that use it; only when
// none is left does the next one find it enabled again.
TEST(AsymmetricFence, JobsThatUseItKeepIt) {
  const bool able = AsymmetricFence::enable();
  {
    const AsymmetricFence::User first;
    {
      const AsymmetricFence::User second;
      AsymmetricFence::disable();
      EXPECT_FALSE(AsymmetricFence::enabled());
      EXPECT_EQ(AsymmetricFence::interrupts(), able) << "the first may rely on it";
    }
    const AsymmetricFence::User third;
    EXPECT_FALSE(AsymmetricFence::enabled()) << "the first knows of a rank without it";
  }
  {
    const AsymmetricFence::User alone;
    EXPECT_EQ(AsymmetricFence::enabled(), able);
    AsymmetricFence::disable();
    EXPECT_FALSE(AsymmetricFence::interrupts()) << "nobody else relies on it";
  }
  EXPECT_EQ(AsymmetricFence::enable(), able);
}

}  // namespace
}  // namespace farandole::testing
