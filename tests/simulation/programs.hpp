// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "farandole/types.hpp"
#include "schedule/program.hpp"

namespace farandole::simulation {

/// Algorithms that exist for a collective on so many ranks, by name.
const std::vector<std::string>& algorithms_for(Collective collective, int size);

/// The index of that name in algorithms(), as signatures carry it.
std::uint8_t algorithm_index(Collective collective, const std::string& algorithm);

/// A verified schedule cut out for one rank, as the front end makes it; kept for later seeds.
std::shared_ptr<const Program> program_for(Collective collective, const std::string& algorithm,
                                           int size, int root, int rank);

}  // namespace farandole::simulation
