// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "farandole/result.hpp"
#include "farandole/types.hpp"
#include "schedule/schedule.hpp"

namespace farandole {

/// What an algorithm is built from.
struct AlgorithmParameters {
  std::int64_t rank_count = 1;
  std::int64_t root = 0;  // broadcast
};

/// One row of the algorithm table; each algorithm file defines its own.
struct AlgorithmInfo {
  Collective collective;
  std::string_view name;     // "ring"
  std::string_view summary;  // one line for people
  std::string_view cost;     // "2(p-1)a + 2(p-1)/p nb", symbols as in docs
  std::string_view source;   // "[Patarasuk09]"
  Schedule (*build)(const AlgorithmParameters& parameters);
};

/// All algorithms, by collective, in the order that docs show.
std::span<const AlgorithmInfo* const> algorithms();

/// Errors    kInvalidArgument naming the algorithm and those that exist for the collective.
Result<const AlgorithmInfo*> find_algorithm(Collective collective, std::string_view name);

}  // namespace farandole
