// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

namespace farandole {

/// memcpy() whose speed does not depend on where source and target lie. glibc's memcpy() uses `rep
/// movsb`, which on AMD's Zen 4 takes four times as long for some distances between the two (glibc
/// bug 30994).
void copy_bytes(void* target, const void* source, std::size_t bytes);

/// memcpy() past the cache: the target's lines are not read first.
void copy_past_cache(void* target, const void* source, std::size_t bytes);

/// copy_bytes() to a target that may have left the nearer caches: prefetches its lines.
void copy_asking_ahead(void* target, const void* source, std::size_t bytes);

/// memcpy() to a target that lies in no cache. Goes past the cache, or through it with prefetching
/// where that is faster on this processor. The first call measures which, for 1.5 ms.
void copy_to_memory(void* target, const void* source, std::size_t bytes);

/// Waits until this thread's earlier stores, those past the cache among them, have left the core.
void drain_stores();

/// Copies of any number of bytes with loads and stores of one width.
struct CopyWay {
  using Copy = void (*)(void* target, const void* source, std::size_t bytes);
  const char* name;
  Copy through_cache;
  Copy asking_ahead;  // also through the cache, with prefetching
  Copy past_cache;
};
/// The ways that this processor has; the functions above take the last one.
std::span<const CopyWay> copy_ways();

}  // namespace farandole
