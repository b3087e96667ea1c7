// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "schedule/verify/values.hpp"

namespace farandole {

/// Whether the caller's `in` and `out` share memory; schedule.hpp says how they overlap.
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

/// `count` cells from `at` on that hold one value of consecutive chunks, from `chunk` on.
struct Run {
  std::int64_t at, count;
  Value value;
  std::int64_t chunk;
  bool operator==(const Run&) const = default;
};

/// What the cells of one rank hold, as runs: memory grows with the number of changes of the value,
/// not with the number of chunks.
class Cells {
 public:
  void write(const Run& run);
  /// Reads the runs within [at, at + count); false if a cell is undefined, and then `into` ends
  /// there.
  bool read(std::int64_t at, std::int64_t count, std::vector<Run>& into) const;

 private:
  void split(std::int64_t at);
  std::map<std::int64_t, Run> runs_;  // by `at`, not overlapping
};

/// Sorts runs in ascending order and merges those that continue each other.
void normalize(std::vector<Run>& runs);

}  // namespace farandole
