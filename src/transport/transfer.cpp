// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/transfer.hpp"

#include <algorithm>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace farandole {
namespace {

// From here on a message is not left in a cache. Two ranks on a CPU with 32 MiB of shared cache
// took 1.7 instead of 0.9 ms to gather 16 MiB past it, and 5.8 instead of 6.1 ms for 64 MiB.
constexpr std::size_t kStreamBytes = std::size_t{24} << 20;

/// memcpy() past the cache: the target's lines are not read first.
void copy_streaming(std::byte* target, const std::byte* source, std::size_t bytes) {
#if defined(__x86_64__)
  constexpr std::size_t kLine = 64;
  const std::size_t before =
      std::min(bytes, (kLine - reinterpret_cast<std::uintptr_t>(target) % kLine) % kLine);
  std::memcpy(target, source, before);
  std::size_t at = before;
  for (; at + kLine <= bytes; at += kLine) {
    const auto* from = reinterpret_cast<const __m128i*>(source + at);
    auto* to = reinterpret_cast<__m128i*>(target + at);
    const __m128i a = _mm_loadu_si128(from), b = _mm_loadu_si128(from + 1),
                  c = _mm_loadu_si128(from + 2), d = _mm_loadu_si128(from + 3);
    _mm_stream_si128(to, a);
    _mm_stream_si128(to + 1, b);
    _mm_stream_si128(to + 2, c);
    _mm_stream_si128(to + 3, d);
  }
  _mm_sfence();  // before anybody is told that it is there
  std::memcpy(target + at, source + at, bytes - at);
#else
  std::memcpy(target, source, bytes);
#endif
}

}  // namespace

void Transfer::start() {
  state = TransferState::kActive;
  error = ErrorKind::kInternal;
  next = nullptr;
  moved = Bytes{0};
  handle = 0;
  phase = 0;
}

void Transfer::fail(ErrorKind kind) {
  error = kind;
  state = TransferState::kFailed;
}

void Receive::deliver(Bytes offset, const std::byte* data, Bytes length) {
  if (length.value() == 0) return;
  if (consume != nullptr) {
    consume(context, offset, data, length);
  } else {
    std::byte* to = target + offset.value();
    if (bytes.value() >= kStreamBytes) {
      copy_streaming(to, data, length.value());
    } else {
      std::memcpy(to, data, length.value());
    }
  }
}

}  // namespace farandole
