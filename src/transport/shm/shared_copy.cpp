// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/shared_copy.hpp"

#include <algorithm>

#include "base/copy.hpp"

namespace farandole::shm {

void SharedCopy::copy(std::byte* target, const std::byte* source, std::size_t bytes) {
  if (bytes < kSampleMin) {
    copy_bytes(target, source, bytes);
    return;
  }
  std::size_t sampled = 0;
  since_sample_ += bytes;
  if (since_sample_ >= kBytesPerPair) {
    sampled = std::min(bytes, kSampleBytes);
    sample(target, source, sampled);
  }
  const auto rest = past_cache() ? &copy_past_cache : &copy_bytes;
  rest(target + sampled, source + sampled, bytes - sampled);
}

/// Copies the start of a block past the cache, or, the next time, through it.
void SharedCopy::sample(std::byte* target, const std::byte* source, std::size_t bytes) {
  const bool first = !past_cache_took_;
  const Clock::time_point begin = now_();
  (first ? copy_past_cache : copy_bytes)(target, source, bytes);
  const Clock::duration took = (now_() - begin) * kSampleBytes / bytes;
  if (first) {
    past_cache_took_ = took;
  } else {
    learn(took, *past_cache_took_);
    past_cache_took_.reset();
    since_sample_ = 0;
  }
}

void SharedCopy::learn(Clock::duration through_cache, Clock::duration past_cache) {
  const bool is_slow = through_cache > past_cache + kNear;
  slow_ = std::clamp(slow_ + (is_slow ? kSlow : kFast), 0, kSlowMax);
}

}  // namespace farandole::shm
