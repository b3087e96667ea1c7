// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/shared_copy.hpp"

#include <algorithm>

namespace farandole::shm {

void SharedCopy::copy(std::byte* target, const std::byte* source, std::size_t bytes) {
  if (bytes < kSampleMin) {
    through_(target, source, bytes);
    return;
  }
  copied_ += bytes;
  std::size_t sampled = 0;
  if (is_due(target, bytes)) {
    sampled = std::min(bytes, kSampleBytes);
    sample(target, source, sampled);
  }
  const auto rest = past_cache() ? past_ : through_;
  rest(target + sampled, source + sampled, bytes - sampled);
}

bool SharedCopy::is_due(const std::byte* target, std::size_t bytes) const {
  switch (next_) {
    case Next::kPastCache:
      return copied_ >= kBytesPerPair;
    case Next::kPrepare:
      return true;
    case Next::kThroughCache:
      // Messages of changing lengths may never begin at that place again.
      return (target == prepared_ && bytes >= prepared_bytes_) || copied_ >= kPreparedMax;
  }
  return false;
}

/// Copies the start of a block, as a sample or to prepare the place of the next one. A sample
/// begins when earlier stores have left the core, and ends when its own have: else one past the
/// cache, which waits for all, would count those of others, and one through it would leave its own
/// out.
void SharedCopy::sample(std::byte* target, const std::byte* source, std::size_t bytes) {
  const auto drained_at = [&] {
    drain_();
    return now_();
  };
  const Clock::time_point begin = next_ == Next::kPrepare ? Clock::time_point{} : drained_at();
  const auto took = [&] { return (drained_at() - begin) * kSampleBytes / bytes; };
  (next_ == Next::kPastCache ? past_ : through_)(target, source, bytes);
  switch (next_) {
    case Next::kPastCache:
      past_cache_took_ = took();
      next_ = Next::kPrepare;
      break;
    case Next::kPrepare:
      prepared_ = target;
      prepared_bytes_ = bytes;
      next_ = Next::kThroughCache;
      break;
    case Next::kThroughCache:
      learn(took(), past_cache_took_, bytes < kSampleBytes ? kNearShort : kNear);
      next_ = Next::kPastCache;
      break;
  }
  copied_ = 0;
}

void SharedCopy::learn(Clock::duration through_cache, Clock::duration past_cache,
                       Clock::duration near) {
  const bool is_slow = through_cache > past_cache + near;
  slow_ = std::clamp(slow_ + (is_slow ? 1 : -1), 0, kSlowMax);
}

}  // namespace farandole::shm
