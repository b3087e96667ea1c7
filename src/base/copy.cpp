// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "base/copy.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace farandole {

#if defined(__x86_64__)
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kShortBytes = 1024;  // glibc does not use `rep movsb` for them

/// Whole lines of the target by `store`, the rest as it comes.
template <auto store>
void copy_by_lines(void* to_begin, const void* from_begin, std::size_t bytes) {
  auto* target = static_cast<std::byte*>(to_begin);
  const auto* source = static_cast<const std::byte*>(from_begin);
  const std::size_t before =
      std::min(bytes, (kLine - reinterpret_cast<std::uintptr_t>(target) % kLine) % kLine);
  if (before > 0) std::memcpy(target, source, before);
  std::size_t at = before;
  for (; at + kLine <= bytes; at += kLine) {
    const auto* from = reinterpret_cast<const __m128i*>(source + at);
    auto* to = reinterpret_cast<__m128i*>(target + at);
    const __m128i a = _mm_loadu_si128(from), b = _mm_loadu_si128(from + 1),
                  c = _mm_loadu_si128(from + 2), d = _mm_loadu_si128(from + 3);
    store(to, a);
    store(to + 1, b);
    store(to + 2, c);
    store(to + 3, d);
  }
  if (at < bytes) std::memcpy(target + at, source + at, bytes - at);
}

}  // namespace

void copy_bytes(void* target, const void* source, std::size_t bytes) {
  if (bytes <= kShortBytes) {
    if (bytes > 0) std::memcpy(target, source, bytes);
    return;
  }
  copy_by_lines<[](__m128i* to, __m128i line) { _mm_store_si128(to, line); }>(target, source,
                                                                              bytes);
}

void copy_past_cache(void* target, const void* source, std::size_t bytes) {
  copy_by_lines<[](__m128i* to, __m128i line) { _mm_stream_si128(to, line); }>(target, source,
                                                                               bytes);
  _mm_sfence();  // before anybody is told that it is there
}
#else
void copy_bytes(void* target, const void* source, std::size_t bytes) {
  if (bytes > 0) std::memcpy(target, source, bytes);
}

void copy_past_cache(void* target, const void* source, std::size_t bytes) {
  copy_bytes(target, source, bytes);
}
#endif

}  // namespace farandole
