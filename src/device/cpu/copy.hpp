// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

namespace farandole {

/// memcpy() that is as fast wherever source and target lie. glibc's uses `rep movsb`, which on
/// AMD's Zen 4 takes four times as long for some distances between the two (glibc bug 30994).
void copy_bytes(void* target, const void* source, std::size_t bytes);

/// memcpy() past the cache: the target's lines are not read first.
void copy_past_cache(void* target, const void* source, std::size_t bytes);

/// copy_bytes() to a target that may have left the nearer caches: its lines are asked for ahead.
void copy_asking_ahead(void* target, const void* source, std::size_t bytes);

/// memcpy() to a target that lies in no cache: past the cache, or where this processor is faster
/// that way through it, asking ahead. The first call measures which, for 1.5 ms.
void copy_to_memory(void* target, const void* source, std::size_t bytes);

/// One width of loads and stores, any number of bytes.
struct CopyWay {
  using Copy = void (*)(void* target, const void* source, std::size_t bytes);
  const char* name;
  Copy through_cache;
  Copy asking_ahead;  // through the cache, too
  Copy past_cache;
};
/// Those that this processor has; the functions above take the last one.
std::span<const CopyWay> copy_ways();

}  // namespace farandole
