// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "base/clock.hpp"
#include "device/cpu/copy.hpp"

namespace farandole::shm {

/// Copies into memory that another rank has read since it was written, in the way that suits the
/// distance to that rank's core. A line must leave the reader's cache before it is written. Where
/// the cores share a cache that is faster than memory; between sockets it is several times slower,
/// and stores that go past the cache are better. Nobody tells a process which it is, and hosts of
/// virtual machines change it, so now and then the starts of two copies are timed, one past the
/// cache and one through it. The latter is to a place that was written through the cache the last
/// time as well: where that was past it the reader has the lines from memory, and writing them
/// takes several times as long even where cores are near.
///
/// Threads   one at a time.
class SharedCopy {
 public:
  /// What is shorter is no sample and goes through the cache.
  static constexpr std::size_t kSampleMin = 2048;
  static constexpr std::size_t kSampleBytes = 8192;  // of what is longer; times are scaled to it
  /// What a sample takes more, at most, through the cache than past it where that is better: what
  /// its reader loses, who then reads it from memory. GB/s through and past it, of one AMD EPYC: 11
  /// to 16 and 9 to 10 near, 2.2 to 2.6 and 10 to 13 far; of a later one 28 to 44 and 42 to 90
  /// near, 7 to 8 and 48 to 90 far; of a third 30 to 60 and 50 to 80 near, 3 to 4 and 60 to 80 far.
  static constexpr Clock::duration kNear = std::chrono::nanoseconds(350);
  /// Of a shorter sample, scaled: the first lines from memory are a larger part of it.
  static constexpr Clock::duration kNearShort = std::chrono::nanoseconds(520);

  /// Bytes copied from one pair of samples to the next. A pair costs 1.5 us where cores are near,
  /// most of it for the reader, who then reads from memory.
  static constexpr std::size_t kBytesPerPair = std::size_t{2} << 20;
  /// How long the second sample waits for a copy to the place that was prepared for it: for more
  /// than a lap of the longest pipe.
  static constexpr std::size_t kPreparedMax = std::size_t{6} << 20;

  using Now = Clock::time_point (*)();
  using Copy = void (*)(void* target, const void* source, std::size_t bytes);
  explicit SharedCopy(Now now = &Clock::now, Copy through = &copy_bytes,
                      Copy past = &copy_past_cache)
      : now_(now), through_(through), past_(past) {}

  void copy(std::byte* target, const std::byte* source, std::size_t bytes);

  /// Takes note of how long two samples of kSampleBytes took. One pair changes nothing: a core may
  /// be lost meanwhile.
  void learn(Clock::duration through_cache, Clock::duration past_cache,
             Clock::duration near = kNear);
  bool past_cache() const { return slow_ >= kSlowMax / 2; }

 private:
  static constexpr int kSlowMax = 6;  // a pair moves slow_ by one, so what most of them say holds

  enum class Next { kPastCache, kPrepare, kThroughCache };

  bool is_due(const std::byte* target, std::size_t bytes) const;
  void sample(std::byte* target, const std::byte* source, std::size_t bytes);

  Now now_;
  Copy through_, past_;
  int slow_ = 0;                  // what the samples said, from 0 to kSlowMax
  Next next_ = Next::kPastCache;  // of a pair of samples
  std::size_t copied_ = 0;        // bytes, since the last sample
  Clock::duration past_cache_took_{};
  const std::byte* prepared_ = nullptr;  // where the next sample through the cache is to go
  std::size_t prepared_bytes_ = 0;
};

}  // namespace farandole::shm
