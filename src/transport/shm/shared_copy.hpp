// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "base/clock.hpp"
#include "device/cpu/copy.hpp"

namespace farandole::shm {

/// Copies into memory that another rank has read since it was last written, in the way that suits
/// the distance to that rank's core.
///
/// A cache line must leave the reader's cache before it is written. Where the cores share a cache,
/// that is faster than going to memory; between sockets it is several times slower, and stores that
/// go past the cache are better. A process is not told which it is, and hosts of virtual machines
/// change it. So from time to time the starts of two copies are timed, one past the cache and one
/// through it. The one through the cache goes to a place that was also written through the cache
/// the last time: otherwise the reader would have the lines from memory, and writing them takes
/// several times as long even where cores are near.
///
/// Threads   one at a time.
class SharedCopy {
 public:
  /// Shorter copies are not timed and go through the cache.
  static constexpr std::size_t kSampleMin = 2048;
  static constexpr std::size_t kSampleBytes = 8192;  // of a longer copy; times are scaled to it
  /// How much longer a sample may take through the cache than past it before past it is better:
  /// what the reader loses by reading from memory. GB/s through the cache and past it: one AMD EPYC
  /// 11 to 16 and 9 to 10 near, 2.2 to 2.6 and 10 to 13 far; a later one 28 to 44 and 42 to 90
  /// near, 7 to 8 and 48 to 90 far; a third 30 to 60 and 50 to 80 near, 3 to 4 and 60 to 80 far.
  static constexpr Clock::duration kNear = std::chrono::nanoseconds(350);
  /// The same for a shorter sample, scaled: the first lines from memory are a larger part of it.
  static constexpr Clock::duration kNearShort = std::chrono::nanoseconds(520);

  /// Bytes copied from one pair of samples to the next. A pair costs 1.5 us where cores are near,
  /// most of it for the reader, which then reads from memory.
  static constexpr std::size_t kBytesPerPair = std::size_t{2} << 20;
  /// Bytes copied until the second sample no longer waits for a copy to the place that was prepared
  /// for it: more than a lap of the longest pipe.
  static constexpr std::size_t kPreparedMax = std::size_t{6} << 20;

  using Now = Clock::time_point (*)();
  using Copy = void (*)(void* target, const void* source, std::size_t bytes);
  using Drain = void (*)();
  explicit SharedCopy(Now now = &Clock::now, Copy through = &copy_bytes,
                      Copy past = &copy_past_cache, Drain drain = &drain_stores)
      : now_(now), through_(through), past_(past), drain_(drain) {}

  void copy(std::byte* target, const std::byte* source, std::size_t bytes);

  /// Records how long two samples of kSampleBytes took. The majority of pairs decides, since a
  /// process may lose its core during one.
  void learn(Clock::duration through_cache, Clock::duration past_cache,
             Clock::duration near = kNear);
  bool past_cache() const { return slow_ >= kSlowMax / 2; }

 private:
  static constexpr int kSlowMax = 6;  // each pair moves slow_ by one, so the majority decides

  enum class Next { kPastCache, kPrepare, kThroughCache };

  bool is_due(const std::byte* target, std::size_t bytes) const;
  void sample(std::byte* target, const std::byte* source, std::size_t bytes);

  Now now_;
  Copy through_, past_;
  Drain drain_;
  int slow_ = 0;                  // what the samples showed, from 0 to kSlowMax
  Next next_ = Next::kPastCache;  // the next step of a pair of samples
  std::size_t copied_ = 0;        // bytes, since the last sample
  Clock::duration past_cache_took_{};
  const std::byte* prepared_ = nullptr;  // where the next sample through the cache is to go
  std::size_t prepared_bytes_ = 0;
};

}  // namespace farandole::shm
