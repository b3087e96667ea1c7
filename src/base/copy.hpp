// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace farandole {

/// memcpy() that is as fast wherever source and target lie. glibc's uses `rep movsb`, which on
/// AMD's Zen 4 takes four times as long for some distances between the two (glibc bug 30994).
void copy_bytes(void* target, const void* source, std::size_t bytes);

/// memcpy() past the cache: the target's lines are not read first.
void copy_past_cache(void* target, const void* source, std::size_t bytes);

}  // namespace farandole
