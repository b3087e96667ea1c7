// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unordered_map>

#include "schedule/schedule.hpp"

// Induction over the ranks: a schedule that commutes with a rotation is correct at rank r + 1 if it
// is correct at rank r. Whether it commutes is read from its expressions, for all ranks and
// iterations at once, by following how each term changes when the rank turns.
namespace farandole {

/// Per action, the rotations (bit i: the i-th) under which its spans stay in place and cover whole
/// turns, so that their chunks are permuted; under the other rotations each span moves as a whole.
using Covers = std::unordered_map<const Action*, std::uint32_t>;

/// The rotations of `schedule` that hold, and what they do to its actions. Claims that hold but
/// that this analysis cannot prove are left out.
struct Commutation {
  std::vector<Rotation> rotations;
  Covers covers;
};
Commutation commuting_rotations(const Schedule& schedule);

}  // namespace farandole
