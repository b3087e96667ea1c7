// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

namespace farandole {

/// The tree of control sockets over the ranks that are still there.
///
/// While all ranks are there, it is the binary tree in which (r-1)/2 is the parent of r. A rank
/// whose parent has gone belongs to its nearest living ancestor, or, without one, to the lowest
/// living rank. A parent is lower than its child, so any set of living ranks forms one tree, and
/// two ranks that know of the same departures agree on it without exchanging messages.
using Gone = std::vector<bool>;  // index = rank

std::optional<int> parent_of(int rank, const Gone& gone);

/// Parent and children of `rank`, ascending.
std::vector<int> neighbours_of(int rank, const Gone& gone);

}  // namespace farandole
