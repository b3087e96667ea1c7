// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace farandole {

/// The result of one simulation path for a set of calls; names are added later.
struct PathResult {
  double seconds = 0;
  bool exact = true;
  std::int64_t messages = 0;
  double bytes = 0;
  std::vector<std::vector<double>> finish_seconds;  // [call][rank]
  std::vector<std::vector<double>> stage_seconds;   // [call][stage] at the rank that is last
  std::vector<double> link_bytes;                   // [link]
};

}  // namespace farandole
