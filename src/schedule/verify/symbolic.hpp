// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "farandole/result.hpp"
#include "schedule/steps.hpp"
#include "schedule/verify/cells.hpp"
#include "schedule/verify/symmetry.hpp"

// The proof behind verify(): the structure of every round, then an execution on symbols instead
// of numbers. Only one rank per orbit of the header's rotations is looked at, which must have
// been found to commute with the schedule; without rotations that is every rank.
namespace farandole {

/// The rounds of an orbit's representative.
using StepsOf = std::function<Steps(std::int64_t orbit)>;

/// The number of the data that `rank` is given in in[index]: equal numbers are reduced, and every
/// other number is moved.
std::int64_t chunk_of_input(const Schedule& header, std::int64_t rank, std::int64_t index);

/// An error at one place of a schedule: rank, round and reason.
Error violation(const Schedule& header, Aliasing aliasing, std::int64_t rank, std::size_t round,
                const std::string& reason);
std::string text(const ConcreteSpan& span);

/// Whether header fields make sense.
Result<void> check_header(const Schedule& header);

/// Runs steps whose structure has been approved, every message a rendezvous, and compares what
/// the ranks end with to what the collective promises.
/// Errors    kUnsupported: true or not, rotations do not help to say. Others: see verify().
Result<Proof> execute_symbolically(const Schedule& header, const Symmetry& symmetry,
                                   const StepsOf& steps_of, Aliasing aliasing);

/// Both, apart and in place. The header has been checked.
Result<Proof> check(const Schedule& header, const StepsOf& steps_of);

}  // namespace farandole
