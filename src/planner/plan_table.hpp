// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "algorithms/registry.hpp"
#include "farandole/types.hpp"
#include "planner/levels.hpp"
#include "planner/tuning.hpp"

namespace farandole {

/// Sizes that are planned alike: two classes per power of two. Class 0 is no bytes at all; the
/// others end at 1, 2, 3, 4, 6, 8, 12, 16, ... bytes.
struct SizeClass {
  static constexpr std::size_t kCount = 130;
  static std::size_t of(std::uint64_t bytes);
  /// The most bytes of a class.
  static std::uint64_t limit(std::size_t size_class);
};

/// Which algorithm each call of one communicator takes, by collective and size class; filled when a
/// class is first asked for: by the tuning table if an entry matches the class's limit, else by
/// choose(). Depends only on data that all ranks share, so that all ranks choose alike.
///
/// Threads   one at a time.
/// Memory    130 classes per collective.
class PlanTable {
 public:
  /// `delegates`: those that reach the ranks.
  PlanTable(Machine machine, const Placement& placement, const GroupShape& shape,
            TuningTable tuning, std::vector<const AlgorithmInfo*> delegates = {});

  /// What may run a call; a delegate does not take every call.
  enum class Kind : std::uint8_t { kAny, kSchedule };
  /// The spec for a call; the reference stays valid until set(). `bytes` as predict() counts them.
  const std::string& find(Collective collective, std::uint64_t bytes, Kind kind = Kind::kAny);

  /// Whether a table names that spec: the tuning table, or an entry of set().
  bool tuned(Collective collective, std::uint64_t bytes, Kind kind = Kind::kAny) const;

  /// From now on calls in the size class of `bytes` take `spec`; empty: what they took before. This
  /// is an entry of its own, which precedes the tuning table.
  void set(Collective collective, std::uint64_t bytes, std::string_view spec);

  const TuningTable& tuning() const { return tuning_; }

 private:
  using Classes = std::array<std::string, SizeClass::kCount>;
  std::string_view tuned_spec(Collective collective, std::uint64_t bytes, Kind kind) const;
  const std::string& fill(Collective collective, std::uint64_t bytes, Kind kind, std::string& cell);

  Levels levels_;
  const GroupShape shape_;
  TuningTable tuning_;
  const std::vector<const AlgorithmInfo*> delegates_;
  using Known = std::array<std::unique_ptr<Classes>, kCollectiveCount>;
  std::array<Known, 2> known_;  // by Kind; empty string: not yet asked
};

}  // namespace farandole
