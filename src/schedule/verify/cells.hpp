// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "schedule/verify/values.hpp"

namespace farandole {

/// Whether the caller's `in` and `out` are one memory; schedule.hpp says how they overlap.
enum class Aliasing : std::uint8_t { kApart, kInPlace };

/// Numbers the chunks of one rank's memory; those that share memory get one number.
class CellMap {
 public:
  CellMap(const Schedule& schedule, Aliasing aliasing);
  std::int64_t of(std::int64_t rank, Buffer buffer, std::int64_t index) const;

 private:
  std::int64_t out_ = 0, scratch_ = 0;
  bool in_at_rank_ = false, out_at_rank_ = false;  // in (or out) is chunk r of the other
};

/// `count` places from `at` on that hold one value of the chunks from `chunk` on.
struct Run {
  std::int64_t at, count;
  Value value;
  std::int64_t chunk;
  bool operator==(const Run&) const = default;
};

/// What one rank's cells hold, as runs: memory grows with how often the value changes, not with
/// the number of chunks.
class Cells {
 public:
  void write(const Run& run);
  /// The runs within [at, at + count); false if a part holds nothing, which is the end of `into`.
  bool read(std::int64_t at, std::int64_t count, std::vector<Run>& into) const;

 private:
  void split(std::int64_t at);
  std::map<std::int64_t, Run> runs_;  // by `at`, not overlapping
};

/// Puts runs into ascending order, and those together that continue each other.
void normalize(std::vector<Run>& runs);

}  // namespace farandole
