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

template <auto store>
void by_16_bytes(std::byte* target, const std::byte* source, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += kLine) {
    const auto* from = reinterpret_cast<const __m128i*>(source + at);
    auto* to = reinterpret_cast<__m128i*>(target + at);
    const __m128i a = _mm_loadu_si128(from), b = _mm_loadu_si128(from + 1),
                  c = _mm_loadu_si128(from + 2), d = _mm_loadu_si128(from + 3);
    store(to, a);
    store(to + 1, b);
    store(to + 2, c);
    store(to + 3, d);
  }
}

[[gnu::target("avx2")]] void by_32_bytes(std::byte* target, const std::byte* source,
                                         std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += kLine) {
    const auto* from = reinterpret_cast<const __m256i*>(source + at);
    auto* to = reinterpret_cast<__m256i*>(target + at);
    const __m256i a = _mm256_loadu_si256(from), b = _mm256_loadu_si256(from + 1);
    _mm256_store_si256(to, a);
    _mm256_store_si256(to + 1, b);
  }
}

[[gnu::target("avx2")]] void past_by_32_bytes(std::byte* target, const std::byte* source,
                                              std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += kLine) {
    const auto* from = reinterpret_cast<const __m256i*>(source + at);
    auto* to = reinterpret_cast<__m256i*>(target + at);
    const __m256i a = _mm256_loadu_si256(from), b = _mm256_loadu_si256(from + 1);
    _mm256_stream_si256(to, a);
    _mm256_stream_si256(to + 1, b);
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

constexpr auto kStore = [](__m128i* to, __m128i part) { _mm_store_si128(to, part); };
constexpr auto kStream = [](__m128i* to, __m128i part) { _mm_stream_si128(to, part); };
constexpr CopyWay kWays[] = {
    {"16 bytes", &copy_by_lines<&by_16_bytes<kStore>>, &copy_past<&by_16_bytes<kStream>>},
    {"32 bytes", &copy_by_lines<&by_32_bytes>, &copy_past<&past_by_32_bytes>},
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
