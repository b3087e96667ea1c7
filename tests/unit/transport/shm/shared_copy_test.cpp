// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/shared_copy.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <set>
#include <utility>
#include <vector>

namespace farandole::shm {
namespace {

using namespace std::chrono_literals;

// Samples through the cache, and what one past it takes.
constexpr Clock::duration kFast = 1us, kSlow = 5us, kPast = 1us;
static_assert(kFast < kPast + SharedCopy::kNear && kSlow > kPast + SharedCopy::kNear);

// Goal: every block arrives whole, and nothing beside it, whichever way it is copied and whether or
// not its start is a sample.
TEST(SharedCopy, TakesAllBytesAndNoOthersEitherWay) {
  constexpr std::size_t kPadding = 64;
  for (const bool past_cache : {false, true}) {
    SharedCopy stage;
    for (int i = 0; i < 100 && past_cache; ++i) stage.learn(kSlow, kPast);
    ASSERT_EQ(stage.past_cache(), past_cache);
    for (const std::size_t bytes :
         {std::size_t{1}, SharedCopy::kSampleMin - 1, SharedCopy::kSampleMin, std::size_t{4097},
          SharedCopy::kSampleBytes, 2 * SharedCopy::kSampleBytes + 1, std::size_t{65536}}) {
      // Some of those that are long enough are, or begin with, a sample, of either kind.
      const std::size_t blocks = std::max<std::size_t>(40, 2 * SharedCopy::kBytesPerPair / bytes);
      for (std::size_t block = 0; block < (bytes < SharedCopy::kSampleMin ? 40 : blocks); ++block) {
        std::vector<std::byte> source(bytes), target(bytes + 2 * kPadding, std::byte{0xEE});
        for (std::size_t i = 0; i < bytes; ++i) {
          source[i] = std::byte(i * 7 + i / 251 + block);
        }
        std::vector<std::byte> expected = target;
        std::ranges::copy(source, expected.begin() + kPadding);
        stage.copy(target.data() + kPadding, source.data(), bytes);
        ASSERT_EQ(target, expected) << "block " << block << " of " << bytes << " bytes";
      }
    }
  }
}

/// A clock by which samples past the cache take 100 ns and those through it, every other, 300.
class Readings {
 public:
  static Clock::time_point next() {
    constexpr Clock::duration kUntilNext[] = {100ns, 1s, 300ns, 1s};
    const Clock::time_point now = now_;
    now_ += kUntilNext[count_++ % 4];
    return now;
  }
  static int count() { return count_; }
  static void start_over() { count_ = 0; }

 private:
  inline static Clock::time_point now_;
  inline static int count_ = 0;
};

// Goal: what takes 200 ns more through the cache is slow if it has 2 KiB, not if it has 4 or 8, and
// what is too short is not looked at. In proportion 4 KiB are above the limit of 8, below their
// own.
TEST(SharedCopy, SamplesOfShortMessagesCountInProportion) {
  for (const std::size_t bytes : {SharedCopy::kSampleMin - 1, SharedCopy::kSampleMin,
                                  std::size_t{4096}, SharedCopy::kSampleBytes}) {
    Readings::start_over();
    SharedCopy stage(&Readings::next);
    const std::vector<std::byte> source(bytes);
    std::vector<std::byte> target(bytes);
    for (std::size_t copied = 0; copied < 5 * SharedCopy::kBytesPerPair; copied += bytes) {
      stage.copy(target.data(), source.data(), bytes);
    }
    EXPECT_EQ(stage.past_cache(), bytes == SharedCopy::kSampleMin) << bytes;
    EXPECT_EQ(Readings::count() > 0, bytes >= SharedCopy::kSampleMin) << bytes;
  }
}

/// What 8 KiB take between two cores.
struct Pair {
  std::chrono::nanoseconds through_cache, to_what_lies_in_memory, past_cache;
  bool share_a_cache;
};
// As measured on an AMD EPYC.
constexpr Pair kNear{150ns, 650ns, 130ns, true}, kFar{1000ns, 1000ns, 130ns, false};
// Slow either way, as another EPYC's far cores: 3 GB/s and 10.
constexpr Pair kOtherSocket{2700ns, 2700ns, 800ns, false};

/// Two cores, what their caches hold, and a clock.
class Cores {
 public:
  static void place(const Pair& pair) {
    pair_ = pair;
    past_.clear();
    waiting_ = 0ns;
  }
  /// Counters that the same thread has published just now.
  static void publish(std::chrono::nanoseconds time) { waiting_ = time; }
  static void drain() { now_ += std::exchange(waiting_, 0ns); }
  static Clock::time_point now() { return now_; }
  static void through_cache(void* target, const void*, std::size_t bytes) {
    const bool from_memory = past_.erase(target) > 0;
    // A core goes on while its last stores, of about an eighth of a sample, still wait for lines.
    const auto all = from_memory ? pair_.to_what_lies_in_memory : pair_.through_cache;
    pass(all - all / 8, bytes);
    waiting_ += all / 8;
  }
  static void past_cache(void* target, const void*, std::size_t bytes) {
    past_.insert(target);
    drain();  // it ends with a fence
    pass(pair_.past_cache, bytes);
  }

 private:
  static void pass(std::chrono::nanoseconds time, std::size_t bytes) {
    now_ += time * bytes / SharedCopy::kSampleBytes;
  }

  inline static Pair pair_ = kNear;
  inline static std::set<const void*> past_;          // what was last written past the cache
  inline static std::chrono::nanoseconds waiting_{};  // for the stores that have not left the core
  inline static Clock::time_point now_;
};

// Goal: the way follows the pair of cores, though a block that was written past the cache is slow
// to write once where cores are near; whether messages come back to the same places or to others.
// Method: made-up pairs, near, far and of other sockets, one after the other.
TEST(SharedCopy, FollowsThePairOfCores) {
  constexpr std::size_t kBytes = SharedCopy::kSampleBytes, kBlocks = 256;
  std::vector<std::byte> memory(2 * kBlocks * kBytes);
  const auto laps = [&](SharedCopy& stage, std::size_t most) {
    for (std::size_t i = 0; i < 64 * kBlocks; ++i) {
      const std::size_t bytes = kBytes + (i / kBlocks) % 2 * most;
      stage.copy(memory.data() + i % kBlocks * bytes, memory.data(), bytes);
    }
  };
  for (const std::size_t most : {std::size_t{0}, kBytes}) {
    SharedCopy stage(&Cores::now, &Cores::through_cache, &Cores::past_cache, &Cores::drain);
    for (const Pair& pair : {kNear, kFar, kNear, kOtherSocket, kFar, kNear, kOtherSocket}) {
      Cores::place(pair);
      laps(stage, most);
      EXPECT_NE(stage.past_cache(), pair.share_a_cache) << "messages of up to " << kBytes + most;
    }
  }
}

// Goal: a sample past the cache does not pay for what was stored before it, nor does one through it
// leave its own stores out. Method: before each copy a far peer's counters are published.
TEST(SharedCopy, CountsItsOwnStoresAlone) {
  constexpr std::size_t kBytes = SharedCopy::kSampleBytes, kBlocks = 256;
  std::vector<std::byte> memory(kBlocks * kBytes);
  SharedCopy stage(&Cores::now, &Cores::through_cache, &Cores::past_cache, &Cores::drain);
  Cores::place(kFar);
  for (std::size_t i = 0; i < 16 * kBlocks; ++i) {
    Cores::publish(600ns);
    stage.copy(memory.data() + i % kBlocks * kBytes, memory.data(), kBytes);
  }
  EXPECT_TRUE(stage.past_cache());
}

// Goal: messages that never begin twice at the same place are sampled, too.
TEST(SharedCopy, SamplesWithoutAPreparedPlace) {
  SharedCopy stage(&Cores::now, &Cores::through_cache, &Cores::past_cache, &Cores::drain);
  Cores::place(kFar);
  std::vector<std::byte> memory(8 * SharedCopy::kPreparedMax);
  const std::size_t bytes = SharedCopy::kSampleBytes;
  for (std::size_t at = 0; at + bytes <= memory.size(); at += bytes) {
    stage.copy(memory.data() + at, memory.data(), bytes);
  }
  EXPECT_TRUE(stage.past_cache());
}

TEST(SharedCopy, PassesTheCacheWhileReadersAreFar) {
  SharedCopy stage;
  EXPECT_FALSE(stage.past_cache());
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(stage.past_cache()) << i;
    stage.learn(kSlow, kPast);
  }
  EXPECT_TRUE(stage.past_cache());
  for (int i = 0; i < 100; ++i) stage.learn(kSlow, kPast);
  for (int i = 0; i < 10; ++i) stage.learn(kFast, kPast);
  EXPECT_FALSE(stage.past_cache()) << "the core moved next to its readers";
}

// What is slow for one processor is fast for another: only the other way beside it tells.
TEST(SharedCopy, TheFasterWayDecidesAndNotItsTime) {
  SharedCopy stage;
  for (int i = 0; i < 100; ++i) stage.learn(kSlow, kSlow);
  EXPECT_FALSE(stage.past_cache());
  for (int i = 0; i < 100; ++i) stage.learn(kFast, kFast / 5);
  EXPECT_TRUE(stage.past_cache());
}

// A sample is slow, too, when the core is lost in the middle of it.
TEST(SharedCopy, FewerSlowSamplesThanFastOnesChangeNothing) {
  SharedCopy stage;
  for (int i = 0; i < 100; ++i) {
    stage.learn(i % 5 < 2 ? kSlow : kFast, kPast);
    EXPECT_FALSE(stage.past_cache());
  }
}

// Of three readers one shares this rank's core, two are far.
TEST(SharedCopy, OneFastSampleAmongSlowOnesChangesNothing) {
  SharedCopy stage;
  for (int i = 0; i < 100; ++i) {
    stage.learn(i % 3 == 2 ? kFast : kSlow, kPast);
    EXPECT_EQ(stage.past_cache(), i == 4 || i >= 6) << i;
  }
}

}  // namespace
}  // namespace farandole::shm
