// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>

#include "base/clock.hpp"

namespace farandole::shm {

/// Copies into memory that another rank has read since it was written, in the way that suits the
/// distance to that rank's core. A line must leave the reader's cache before it is written. Where
/// the cores share a cache that is faster than memory; between sockets it is several times slower,
/// and stores that go past the cache are better. Nobody tells a process which it is, and hosts of
/// virtual machines change it, so now and then the starts of two copies that follow each other are
/// timed, one past the cache and one through it.
/// Threads   one at a time.
class SharedCopy {
 public:
  /// What is shorter is no sample and goes through the cache.
  static constexpr std::size_t kSampleMin = 2048;
  static constexpr std::size_t kSampleBytes = 8192;  // of what is longer; times are scaled to it
  /// What a sample takes more, at most, through the cache than past it where that is better: as
  /// long as a core reads it from memory, where it is after that, at 18 GB/s. GB/s through and
  /// past it, of one AMD EPYC: 11 to 16 and 9 to 10 near, 2.2 to 2.6 and 10 to 13 far; of a later
  /// one 28 to 44 and 42 to 90 near, 7 to 8 and 48 to 90 far.
  static constexpr Clock::duration kNear = std::chrono::nanoseconds(450);

  /// Bytes copied from one pair of samples to the next. A pair costs 1.5 us where cores are near,
  /// most of it for the reader, who then reads from memory.
  static constexpr std::size_t kBytesPerPair = std::size_t{2} << 20;

  using Now = Clock::time_point (*)();
  explicit SharedCopy(Now now = &Clock::now) : now_(now) {}

  void copy(std::byte* target, const std::byte* source, std::size_t bytes);

  /// Takes note of how long two samples of kSampleBytes took. One pair changes nothing: a core may
  /// be lost meanwhile.
  void learn(Clock::duration through_cache, Clock::duration past_cache);
  bool past_cache() const { return slow_ >= kSlowMax / 2; }

 private:
  // One slow sample changes nothing, and neither does a fast one among two slow ones: of a near
  // reader among far ones.
  static constexpr int kSlow = 2, kFast = -1;
  static constexpr int kSlowMax = 6;

  void sample(std::byte* target, const std::byte* source, std::size_t bytes);

  Now now_;
  int slow_ = 0;                                    // what the samples said, from 0 to kSlowMax
  std::size_t since_sample_ = 0;                    // bytes, since the last pair
  std::optional<Clock::duration> past_cache_took_;  // between the samples of a pair
};

}  // namespace farandole::shm
