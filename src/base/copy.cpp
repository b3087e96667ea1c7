// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "base/copy.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace farandole {

#if defined(__x86_64__)
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kShortBytes = 1024;  // glibc does not use `rep movsb` for them

// Whole lines, of an aligned target.
using CopyLines = void (*)(std::byte* target, const std::byte* source, std::size_t bytes);

template <bool past_cache>
void by_16_bytes(std::byte* target, const std::byte* source, std::size_t bytes) {
#pragma GCC unroll 4
  for (std::size_t at = 0; at < bytes; at += sizeof(__m128i)) {
    const __m128i part = _mm_loadu_si128(reinterpret_cast<const __m128i*>(source + at));
    auto* to = reinterpret_cast<__m128i*>(target + at);
    past_cache ? _mm_stream_si128(to, part) : _mm_store_si128(to, part);
  }
}

template <bool past_cache>
[[gnu::target("avx2")]] void by_32_bytes(std::byte* target, const std::byte* source,
                                         std::size_t bytes) {
#pragma GCC unroll 4
  for (std::size_t at = 0; at < bytes; at += sizeof(__m256i)) {
    const __m256i part = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source + at));
    auto* to = reinterpret_cast<__m256i*>(target + at);
    past_cache ? _mm256_stream_si256(to, part) : _mm256_store_si256(to, part);
  }
}

/// Whole lines of the target by `copy_lines`, the rest as it comes.
template <CopyLines copy_lines>
void copy_by_lines(void* to, const void* from, std::size_t bytes) {
  auto* target = static_cast<std::byte*>(to);
  const auto* source = static_cast<const std::byte*>(from);
  const std::size_t before =
      std::min(bytes, (kLine - reinterpret_cast<std::uintptr_t>(target) % kLine) % kLine);
  const std::size_t lines = (bytes - before) / kLine * kLine, end = before + lines;
  if (before > 0) std::memcpy(target, source, before);
  copy_lines(target + before, source + before, lines);
  if (end < bytes) std::memcpy(target + end, source + end, bytes - end);
}

template <CopyLines copy_lines>
void copy_past(void* target, const void* source, std::size_t bytes) {
  copy_by_lines<copy_lines>(target, source, bytes);
  _mm_sfence();  // before anybody is told that it is there
}

constexpr CopyWay kWays[] = {
    {"16 bytes", &copy_by_lines<&by_16_bytes<false>>, &copy_past<&by_16_bytes<true>>},
    {"32 bytes", &copy_by_lines<&by_32_bytes<false>>, &copy_past<&by_32_bytes<true>>},
};
const std::span<const CopyWay> kUsable(kWays, __builtin_cpu_supports("avx2") > 0 ? 2 : 1);
const CopyWay& kBest = kUsable.back();

}  // namespace

std::span<const CopyWay> copy_ways() {
  return kUsable;
}

void copy_bytes(void* target, const void* source, std::size_t bytes) {
  if (bytes > kShortBytes) {
    kBest.through_cache(target, source, bytes);
  } else if (bytes > 0) {
    std::memcpy(target, source, bytes);
  }
}

void copy_past_cache(void* target, const void* source, std::size_t bytes) {
  kBest.past_cache(target, source, bytes);
}
#else
void copy_bytes(void* target, const void* source, std::size_t bytes) {
  if (bytes > 0) std::memcpy(target, source, bytes);
}

void copy_past_cache(void* target, const void* source, std::size_t bytes) {
  copy_bytes(target, source, bytes);
}

std::span<const CopyWay> copy_ways() {
  static constexpr CopyWay kOnly[] = {{"memcpy", &copy_bytes, &copy_past_cache}};
  return kOnly;
}
#endif

}  // namespace farandole
