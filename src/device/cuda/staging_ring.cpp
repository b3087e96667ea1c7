// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/staging_ring.hpp"

#include <algorithm>
#include <utility>

namespace farandole::cuda {

StagingRing::Place StagingRing::take(std::size_t bytes, std::vector<EventPool::Held>& ends) {
  Place place{next_number_++, next_offset_,
              std::max(bytes + kAlignment - 1, kAlignment) / kAlignment * kAlignment, nullptr};
  if (place.bytes > bytes_ - next_offset_) place.offset = 0;
  next_offset_ = place.offset + place.bytes;
  std::erase_if(taken_, [&](Place& old) {
    const bool overlaps =
        old.offset < place.offset + place.bytes && place.offset < old.offset + old.bytes;
    if (!overlaps && word_of(old.number) != word_of(place.number)) return false;
    if (old.end != nullptr) ends.push_back(std::move(old.end));
    return true;
  });
  taken_.push_back(place);
  return place;
}

void StagingRing::set_end(std::uint64_t number, EventPool::Held end) {
  const auto found = std::ranges::find(taken_, number, &Place::number);
  if (found != taken_.end()) found->end = std::move(end);
}

}  // namespace farandole::cuda
