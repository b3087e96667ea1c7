// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/shared_copy.hpp"

#include <algorithm>

#include "base/copy.hpp"

namespace farandole::shm {

void SharedCopy::copy(std::byte* target, const std::byte* source, std::size_t bytes) {
  std::size_t copied = 0;
  if (++blocks_ >= kBlocksPerSample && bytes >= kSampleBytes) {
    blocks_ = 0;
    const Clock::time_point begin = Clock::now();
    copy_bytes(target, source, kSampleBytes);
    learn(Clock::now() - begin);
    copied = kSampleBytes;
  }
  const auto rest = past_cache() ? &copy_past_cache : &copy_bytes;
  rest(target + copied, source + copied, bytes - copied);
}

void SharedCopy::learn(Clock::duration taken) {
  slow_ = std::clamp(slow_ + (taken > kNear ? kSlow : kFast), 0, kSlowMax);
}

}  // namespace farandole::shm
