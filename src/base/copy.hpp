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

/// One width of loads and stores, any number of bytes.
struct CopyWay {
  const char* name;
  void (*through_cache)(void* target, const void* source, std::size_t bytes);
  void (*past_cache)(void* target, const void* source, std::size_t bytes);
};
/// Those that this processor has; copy_bytes() and copy_past_cache() take the last one.
std::span<const CopyWay> copy_ways();

}  // namespace farandole
