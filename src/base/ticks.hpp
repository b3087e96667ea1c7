// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/clock.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

namespace farandole {

/// A counter that grows at a constant rate, for sums over many short times. Where the CPU has such
/// a counter, reading it takes a third of the time of Clock::now(). In virtual time it is the
/// virtual clock.
///
/// Threads   any; all cores count alike.
class Ticks {
 public:
  static std::uint64_t now() {
#if defined(__x86_64__)
    if (kCounter && !Clock::is_virtual()) return __rdtsc();
#endif
    return static_cast<std::uint64_t>(Clock::now().time_since_epoch().count());
  }

 private:
#if defined(__x86_64__)
  /// CPUID 0x80000007, EDX bit 8: the time stamp counter never changes its rate.
  static bool has_counter() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid(0x80000007, &a, &b, &c, &d) != 0 && (d >> 8 & 1) != 0;
  }
  inline static const bool kCounter = has_counter();
#endif
};

/// Converts ticks to nanoseconds, by what both clocks have counted since this was made.
class TickRate {
 public:
  std::uint64_t nanoseconds(std::uint64_t ticks) const {
    const auto passed = static_cast<double>((Clock::now() - clock_).count());
    const auto counted = static_cast<double>(Ticks::now() - ticks_);
    return static_cast<std::uint64_t>(static_cast<double>(ticks) * passed /
                                      (counted > 0 ? counted : 1));
  }

 private:
  Clock::time_point clock_ = Clock::now();
  std::uint64_t ticks_ = Ticks::now();
};

}  // namespace farandole
