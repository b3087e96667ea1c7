// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "farandole/result.hpp"
#include "schedule/steps.hpp"
#include "schedule/verify/cells.hpp"
#include "schedule/verify/symmetry.hpp"

// The proof behind verify(): the structure of every round, then an execution on symbols instead of
// numbers. It covers only one rank per orbit of the header's rotations, which must commute with the
// schedule; without rotations that is every rank.
namespace farandole {

/// The rounds of an orbit's representative.
using StepsOf = std::function<Steps(std::int64_t orbit)>;

/// The number of the data that `rank` has as input in in[index]: data of equal numbers are reduced
/// with each other, data of different numbers are only moved.
std::int64_t chunk_of_input(const Schedule& header, std::int64_t rank, std::int64_t index);

/// An error at one place of a schedule: rank, round and reason.
Error violation(const Schedule& header, Aliasing aliasing, std::int64_t rank, std::size_t round,
                const std::string& reason);
std::string text(const ConcreteSpan& span);

/// Whether header fields make sense.
Result<void> check_header(const Schedule& header);

/// Runs steps whose structure has been checked, with every message as a rendezvous, and compares
/// the ranks' results with what the collective promises.
///
/// Errors    kUnsupported: not decided, by these rotations or within the limits. Others: see
///           verify().
Result<Proof> execute_symbolically(const Schedule& header, const Symmetry& symmetry,
                                   const StepsOf& steps_of, Aliasing aliasing);

/// Both parts of the proof, for `in` and `out` apart and in place. The header has been checked.
Result<Proof> check(const Schedule& header, const StepsOf& steps_of);

}  // namespace farandole
