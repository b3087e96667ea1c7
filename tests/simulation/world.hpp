// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "simulation/scenario.hpp"

namespace farandole::simulation {

/// What came of a run.
struct Report {
  std::string violation;  // of the first invariant that did not hold; empty: all held
  std::uint64_t operations = 0, failures = 0;
  std::uint64_t trace = 0;  // a hash of all that happened, the same for equal seeds
};

/// Runs the shipped engines of all ranks on this thread, in virtual time. Invariants:
///   no wrong result, and no byte written outside the buffers;
///   no hang: every operation of a rank that runs ends by its deadline, or soon after the log;
///   the right rank is named, and no error comes without its cause;
///   whatever ended before the fault ended well everywhere; disagreements fail on all ranks;
///   nothing is held afterwards: no operation, transfer or parcel.
/// `loud`: prints what happens.
Report run(const Scenario& scenario, bool loud = false);

}  // namespace farandole::simulation
