// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "device/cuda/gpu.hpp"

namespace farandole::cuda {

/// Which bytes of staging memory, and which pair of words, the next piece gets: those that were
/// given out longest ago, free or not. Whoever gets them waits for the ends of earlier pieces on
/// the device, so that nobody waits on the host.
class StagingRing {
 public:
  struct Place {
    std::uint64_t number = 0;  // rising
    std::size_t offset = 0, bytes = 0;
    EventPool::Held end;  // of its last use; null: until set_end()
  };

  /// `bytes`: a multiple of 64. `words`: pairs of words, as many as there may be places at once.
  StagingRing(std::size_t bytes, std::size_t words) : bytes_(bytes), words_(words) {}

  std::size_t bytes() const { return bytes_; }
  /// `bytes` <= bytes(). Adds to `ends` what has to come before the place is free.
  Place take(std::size_t bytes, std::vector<EventPool::Held>& ends);
  void set_end(std::uint64_t number, EventPool::Held end);
  std::size_t word_of(std::uint64_t number) const { return number % words_; }
  /// What the words of this use hold in the end; it differs from all that they held before.
  std::uint32_t value_of(std::uint64_t number) const {
    return static_cast<std::uint32_t>(number / words_ + 1);
  }

 private:
  static constexpr std::size_t kAlignment = 64;
  const std::size_t bytes_, words_;
  std::size_t next_offset_ = 0;
  std::uint64_t next_number_ = 0;
  std::deque<Place> taken_;  // oldest first
};

}  // namespace farandole::cuda
