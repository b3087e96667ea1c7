// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "farandole/result.hpp"
#include "schedule/expand.hpp"

// Execution of a schedule on symbols instead of numbers; check() is its only user.
namespace farandole {

/// Whether the caller's `in` and `out` are one memory; schedule.hpp says how they overlap.
enum class Aliasing : std::uint8_t { kApart, kInPlace };

/// Numbers the chunks of one rank's memory; those that share memory get one number.
class CellMap {
 public:
  CellMap(const Schedule& schedule, Aliasing aliasing);
  std::size_t of(std::int64_t rank, Buffer buffer, std::int64_t index) const;
  std::size_t per_rank() const { return static_cast<std::size_t>(scratch_ + scratch_slots_); }

 private:
  std::int64_t out_ = 0, scratch_ = 0, scratch_slots_ = 0;
  bool in_at_rank_ = false, out_at_rank_ = false;  // in (or out) is chunk r of the other
};

/// What a chunk can hold: an expression tree whose leaves are the ranks' inputs. Equal trees
/// have equal numbers, so that comparing two results compares every bit they can have.
class ValueTable {
 public:
  using Id = std::uint32_t;
  static constexpr Id kUndefined = 0;

  explicit ValueTable(std::int64_t rank_count);
  Id leaf(std::int64_t rank, std::int64_t chunk);
  /// left (+) right. Needs the same chunk and no common contributor.
  Id reduce(Id left, Id right);
  bool share_contributors(Id a, Id b) const;
  std::int64_t contributor_count(Id id) const;
  std::int64_t chunk(Id id) const { return chunks_[id]; }
  std::string text(Id id) const;

 private:
  Id add(std::int64_t chunk);
  std::size_t words_;
  std::vector<std::int64_t> chunks_;
  std::vector<std::uint64_t> contributors_;      // [id, words_], one bit per rank
  std::unordered_map<std::uint64_t, Id> trees_;  // (left, right) → id
};

/// The number of the data that `rank` is given in in[index]: equal numbers are reduced, and every
/// other number is moved.
std::int64_t chunk_of_input(const Schedule& header, std::int64_t rank, std::int64_t index);

/// An error at one place of a schedule: rank, round and reason.
Error violation(const Schedule& header, Aliasing aliasing, std::int64_t rank, std::size_t round,
                const std::string& reason);
std::string text(const ConcreteSpan& span);

/// Runs steps whose structure check() has approved, every message a rendezvous, and compares
/// what the ranks end with to what the collective promises.
Result<Proof> execute_symbolically(const Expanded& expanded, Aliasing aliasing);

}  // namespace farandole
