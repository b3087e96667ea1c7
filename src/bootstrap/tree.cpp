// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/tree.hpp"

#include <algorithm>

namespace farandole {
namespace {

bool is_gone(int rank, const Gone& gone) {
  return gone[static_cast<std::size_t>(rank)];
}

int lowest_living(const Gone& gone) {
  return static_cast<int>(std::find(gone.begin(), gone.end(), false) - gone.begin());
}

std::optional<int> parent_of(int rank, int lowest, const Gone& gone) {
  for (int ancestor = rank; ancestor > 0;) {
    ancestor = (ancestor - 1) / 2;
    if (!is_gone(ancestor, gone)) return ancestor;
  }
  return lowest < rank ? std::optional(lowest) : std::nullopt;
}

}  // namespace

std::optional<int> parent_of(int rank, const Gone& gone) {
  return parent_of(rank, lowest_living(gone), gone);
}

std::vector<int> neighbours_of(int rank, const Gone& gone) {
  const int lowest = lowest_living(gone);
  std::vector<int> neighbours;
  if (const auto parent = parent_of(rank, lowest, gone)) neighbours.push_back(*parent);
  for (int child = rank + 1; child < static_cast<int>(gone.size()); ++child) {
    if (!is_gone(child, gone) && parent_of(child, lowest, gone) == rank)
      neighbours.push_back(child);
  }
  return neighbours;
}

}  // namespace farandole
