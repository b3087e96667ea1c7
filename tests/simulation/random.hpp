// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

namespace farandole::simulation {

/// Numbers from a seed, the same with every library.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    std::uint64_t x = state_ += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  }
  /// 0 to n - 1; n is at least 1.
  int below(int n) { return static_cast<int>(next() % static_cast<std::uint64_t>(n)); }
  int between(int low, int high) { return low + below(high - low + 1); }
  bool chance(int percent) { return below(100) < percent; }
  std::chrono::nanoseconds time(std::chrono::nanoseconds most) {
    return std::chrono::nanoseconds(
        static_cast<std::int64_t>(next() % (static_cast<std::uint64_t>(most.count()) + 1)));
  }
  template <class T>
  const T& pick(const std::vector<T>& of) {
    return of[static_cast<std::size_t>(below(static_cast<int>(of.size())))];
  }

 private:
  std::uint64_t state_;
};

}  // namespace farandole::simulation
