// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "farandole/result.hpp"
#include "farandole/types.hpp"
#include "schedule/schedule.hpp"

namespace farandole {

/// One layer of a hierarchy: groups of `size` ranks, and how each group scatters and gathers sums.
struct Layer {
  enum class Kind : std::uint8_t { kRing, kHalving, kDirect };
  std::int64_t size = 1;
  Kind kind = Kind::kRing;  // kHalving: sizes that are powers of two
  bool operator==(const Layer&) const = default;
};

/// What an algorithm is built from. Beyond the first two members, each algorithm reads those that
/// its `options` name and ignores the rest; 0 or empty stands for its own default.
struct AlgorithmParameters {
  std::int64_t rank_count = 1;
  std::int64_t root = 0;                 // a rank; collectives with a root
  std::vector<Layer> layers = {};        // their sizes multiply to rank_count, innermost first
  std::int64_t radix = 0;                // of a tree
  std::int64_t chunks = 0;               // that a pipeline cuts the message into
  std::vector<std::int32_t> order = {};  // [rank_count]: the rank at each position
};

/// More ranks than any machine has.
inline constexpr std::int64_t kRanksMax = std::int64_t{1} << 20;

class Delegate;

/// One row of the algorithm table; each algorithm file defines its own.
struct AlgorithmInfo {
  Collective collective;
  std::string_view name;     // "ring"
  std::string_view summary;  // one line for people
  std::string_view cost;     // "2(p-1)a + 2(p-1)/p nb", symbols as in docs
  std::string_view source;   // "[Patarasuk09]"
  std::string_view needs;    // "rank_count >= 1"
  std::string_view options;  // keys of an AlgorithmSpec that it reads: "layers order"
  std::int64_t ranks_max;    // build_schedule() refuses more; beyond, nobody should want it
  // Null in rows that were registered: then there is a delegate, or schedules from files.
  Schedule (*build)(const AlgorithmParameters& parameters);
  const Delegate* delegate = nullptr;
};

/// The library's own algorithms, by collective, in the order that docs show.
std::span<const AlgorithmInfo* const> algorithms();

/// These, and then the rows that were registered in this process, in that order.
std::vector<const AlgorithmInfo*> all_algorithms();

/// Index of the row in algorithms(), equal on all ranks; kRegistered for any other row.
std::uint8_t index_of(const AlgorithmInfo& info);
inline constexpr std::uint8_t kRegistered = 0xff;

/// Builds what `spec` names: "ring", or with options "hierarchical:layers=4ring/8direct",
/// "knomial:radix=4", "pipelined_chain:chunks=32,order=0/2/1/3". `deterministic` asks for the one
/// fixed order of operands that all algorithms then share. It is refused for a registered schedule
/// (algorithms/registered.hpp), which has its own order.
///
/// Errors    kInvalidArgument naming the algorithm or option, what was given and what is allowed.
Result<Schedule> build_schedule(Collective collective, std::string_view spec,
                                std::int64_t rank_count, std::int64_t root,
                                bool deterministic = false);

/// The delegate that a spec names; null if it names none.
const Delegate* find_delegate(Collective collective, std::string_view spec);

/// A row of algorithms(), or one that was registered in this process.
///
/// Errors    kInvalidArgument naming the algorithm and those of the library for the collective.
Result<const AlgorithmInfo*> find_algorithm(Collective collective, std::string_view name);

}  // namespace farandole
