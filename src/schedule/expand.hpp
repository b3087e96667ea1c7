// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "farandole/result.hpp"
#include "schedule/schedule.hpp"

namespace farandole {

struct ConcreteSpan {
  Buffer buffer;
  std::int64_t first, count, shape;
  bool operator==(const ConcreteSpan&) const = default;
};

/// An Action at one rank and one iteration, guards resolved.
struct ConcreteAction {
  Action::Kind kind;
  int lane;
  std::int64_t peer;
  std::optional<ConcreteSpan> source, target, operand;
  bool incoming_first, after_previous;
  std::uint32_t covers = 0;  // the action's entry in Covers
  bool operator==(const ConcreteAction&) const = default;
};
using ConcreteRound = std::vector<ConcreteAction>;

/// Every step of every rank: [rank][round][action]. Rounds in which a rank idles are kept, so
/// that round k is the same round on every rank. Size grows as ranks * rounds.
struct Expanded {
  Schedule header;  // items and rotations empty
  std::vector<std::vector<ConcreteRound>> ranks;
};

Expanded expand(const Schedule& schedule);

/// The exhaustive proof behind verify(), on explicit steps; tests pass it steps with faults.
Result<Proof> check(const Expanded& expanded);

}  // namespace farandole
