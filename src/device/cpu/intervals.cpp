// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/intervals.hpp"

#include <algorithm>
#include <iterator>

namespace farandole {

Intervals::Interval Intervals::add(std::size_t offset, std::size_t bytes) {
  total_bytes_ += bytes;
  auto next = map_.lower_bound(offset);
  if (next != map_.end() && next->first == offset + bytes) {
    bytes += next->second;
    next = map_.erase(next);
  }
  if (next != map_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += bytes;
      return {before->first, before->second};
    }
  }
  map_.emplace_hint(next, offset, bytes);
  return {offset, bytes};
}

void Intervals::remove(std::size_t offset, std::size_t bytes) {
  const std::size_t end = offset + bytes;
  auto it = map_.upper_bound(offset);
  if (it != map_.begin()) --it;
  while (it != map_.end() && it->first < end) {
    const auto [first, length] = *it;
    const std::size_t last = first + length;
    const std::size_t low = std::max(first, offset);
    const std::size_t high = std::min(last, end);
    if (low >= high) {
      ++it;
      continue;
    }
    it = map_.erase(it);
    total_bytes_ -= high - low;
    if (first < low) map_.emplace(first, low - first);
    if (high < last) it = map_.emplace(high, last - high).first;
  }
}

}  // namespace farandole
