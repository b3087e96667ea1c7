// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace farandole::coordinator {

/// [rank_count]: the number by which messages call each rank, its rank in the job; empty: the same
/// as here.
using RankNames = std::vector<std::int32_t>;
/// A rank that does not exist, as a message or a caller may give, keeps its own number.
inline std::int32_t name_of(std::int32_t rank, const RankNames& names) {
  const auto index = static_cast<std::size_t>(rank);  // of a negative rank, far too large
  return index < names.size() ? names[index] : rank;
}

/// Ranks as disjoint runs, ascending: a subtree of the coordinator's tree is one run, so that
/// 27,600 ranks that all asked take eight bytes.
class RankSet {
 public:
  struct Run {
    std::int32_t first, last;  // both included
    bool operator==(const Run&) const = default;
  };

  RankSet() = default;
  static RankSet of(std::int32_t rank);
  static RankSet all(std::int32_t rank_count);  // 0 to rank_count - 1

  bool contains(std::int32_t rank) const;
  void add(std::int32_t rank) { add(Run{rank, rank}); }
  void add(Run run);
  void add(const RankSet& other);
  std::int32_t count() const;
  bool empty() const { return runs_.empty(); }
  /// The ranks that are here and not in `other`.
  RankSet minus(const RankSet& other) const;
  /// The ranks from 0 to rank_count - 1 that are not here.
  RankSet without(std::int32_t rank_count) const { return all(rank_count).minus(*this); }
  std::int32_t front() const { return runs_.front().first; }  // not empty
  std::int32_t back() const { return runs_.back().last; }     // not empty
  /// "rank 2", "ranks 0, 1 and 5 to 9"; of a long list the first and how many more.
  std::string describe(const RankNames& names = {}) const;

  /// Ascending, with at least one absent rank between two of them.
  const std::vector<Run>& runs() const { return runs_; }
  bool operator==(const RankSet&) const = default;

 private:
  std::vector<Run> runs_;
};

}  // namespace farandole::coordinator
