// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "algorithms/registry.hpp"

namespace farandole {

/// The root's position in the order that the caller asks for.
inline std::int64_t root_position(const AlgorithmParameters& parameters) {
  const auto& order = parameters.order;
  if (order.empty()) return parameters.root;
  return std::find(order.begin(), order.end(), parameters.root) - order.begin();
}

}  // namespace farandole
