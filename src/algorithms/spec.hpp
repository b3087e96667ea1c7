// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "algorithms/registry.hpp"

namespace farandole {

/// What a spec names: a row of the table, and parameters that its builder may rely on.
struct AlgorithmSpec {
  const AlgorithmInfo* info;
  AlgorithmParameters parameters;
};

/// Reads `name[:key=value,...]`. Values: layers=4ring/8direct/2halving, innermost first, rings
/// where no kind is named; radix=4; chunks=32; order=0/2/1/3, the rank at each position.
///
/// Errors    kInvalidArgument naming the algorithm or option, what was given and what is allowed.
Result<AlgorithmSpec> parse_spec(Collective collective, std::string_view spec,
                                 std::int64_t rank_count, std::int64_t root);

}  // namespace farandole
