// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/shared_copy.hpp"

#include <algorithm>

#include "base/copy.hpp"

namespace farandole::shm {

void SharedCopy::copy(std::byte* target, const std::byte* source, std::size_t bytes) {
  std::size_t copied = 0;
  if (++blocks_ >= kBlocksPerSample && bytes >= 2 * kSampleBytes) {
    blocks_ = 0;
    // In this order, since stores past the cache wait for those before them.
    const Clock::time_point begin = Clock::now();
    copy_past_cache(target, source, kSampleBytes);
    const Clock::time_point middle = Clock::now();
    copy_bytes(target + kSampleBytes, source + kSampleBytes, kSampleBytes);
    learn(Clock::now() - middle, middle - begin);
    copied = 2 * kSampleBytes;
  }
  const auto rest = past_cache() ? &copy_past_cache : &copy_bytes;
  rest(target + copied, source + copied, bytes - copied);
}

void SharedCopy::learn(Clock::duration through_cache, Clock::duration past_cache) {
  const bool is_slow = through_cache > past_cache + kNear;
  slow_ = std::clamp(slow_ + (is_slow ? kSlow : kFast), 0, kSlowMax);
}

}  // namespace farandole::shm
