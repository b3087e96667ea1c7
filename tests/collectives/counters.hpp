// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace farandole::testing {

/// This thread's calls so far of operator new and of pthread_mutex_lock.
struct Counters {
  std::size_t allocations = 0;
  std::size_t locks = 0;
};
Counters counters();

/// Sanitizers bring an allocator and mutexes of their own; nothing is counted under them.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kCounts = false;
#else
inline constexpr bool kCounts = true;
#endif

}  // namespace farandole::testing
