// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "algorithms/registry.hpp"
#include "farandole/types.hpp"
#include "planner/levels.hpp"

namespace farandole {

/// Every way to write `number` as a product of factors from 2 to `factor_max` (0: any), in every
/// order; one empty list for 1. A number with k prime factors has up to k! of them, a power of two
/// 2^(k - 1).
std::vector<std::vector<std::int64_t>> factorizations(std::int64_t number,
                                                      std::int64_t factor_max = 0);

struct HierarchySearch {
  std::int64_t factor_max = 0;  // of a layer; 0: any
  bool rings_only = false;      // no halving or direct layers
  bool exhaustive = false;      // every factorization with every kind in every layer
  std::size_t kept = 8;         // else: how many hierarchies of each number of ranks are extended
};

struct RankedHierarchy {
  std::string spec;  // "hierarchical:layers=4ring/8direct"
  std::size_t layers = 1;
  double seconds = 0;
};

/// Hierarchies for one call, fastest first; equally fast ones by number of layers, then by name.
/// collective: allreduce, reducescatter or allgather.
///
/// The best hierarchy at a large p nearly always extends the best at a smaller one, by one more
/// layer or a longer last layer ([Ueno19]; tests compare with the exhaustive search). So the
/// divisors of p are visited in rising order, and for each only the `kept` best are extended.
std::vector<RankedHierarchy> search_hierarchies(Collective collective, double bytes, Levels& levels,
                                                const HierarchySearch& search = {});

}  // namespace farandole
