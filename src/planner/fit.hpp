// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "schedule/schedule.hpp"

namespace farandole {

/// Whether a verified schedule is also right when chunks have different lengths:
///   - every chunk keeps its name on all its ways, so that source and target are equally long;
///   - a span of scratch holds one chunk, since slots are as long as the longest one;
///   - ranks that do not know all lengths (gather, scatter, alltoall) touch none but their own
///     buffers, and send only from `in`.
/// All ranks come to the same answer. Costs about as much as the proof: every step of every rank
/// once. Beyond kRanksWithCountsMax ranks the answer is no.
bool takes_counts(const Schedule& schedule);
inline constexpr std::int64_t kRanksWithCountsMax = 2048;

/// "ring, direct": those of the collective that take counts with so many ranks.
std::string algorithms_with_counts(Collective collective, int rank_count);

}  // namespace farandole
