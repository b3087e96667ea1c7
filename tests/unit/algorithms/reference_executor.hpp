// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "schedule/expand.hpp"

namespace farandole {

/// How messages and memory behave in one run.
struct Regime {
  bool in_place = false;
  bool eager = false;     // a send is finished at once, its bytes copied; else it waits
  bool reversed = false;  // ranks and actions are taken from the last to the first
  std::optional<std::int64_t> frozen = std::nullopt;  // this rank never starts
};

/// Runs steps on numbers that are unique to (rank, chunk, element), with real message passing,
/// and compares the results with sums computed directly; shares no code with check().
/// Returns what went wrong, or nothing.
std::optional<std::string> run_reference(const Expanded& expanded, const Regime& regime);

/// run_reference() in every regime; for a barrier also with each rank frozen, when no other may
/// finish. Returns the first thing that went wrong, or nothing.
std::optional<std::string> judge(const Expanded& expanded);

}  // namespace farandole
