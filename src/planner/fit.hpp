// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "schedule/schedule.hpp"

namespace farandole {

/// Whether a verified schedule is also right when chunks have different lengths:
///   - every chunk keeps its identity wherever it goes, so that source and target are equally long;
///   - a span of scratch holds one chunk, since slots are as long as the longest chunk;
///   - ranks that do not know all lengths (gather, scatter, alltoall) use only their own buffers,
///     and send only from `in`.
/// All ranks get the same answer. Costs about as much as the proof: every step of every rank once.
/// Beyond kRanksWithCountsMax ranks the answer is no.
bool takes_counts(const Schedule& schedule);
inline constexpr std::int64_t kRanksWithCountsMax = 2048;

/// "ring, direct": the collective's algorithms that take counts with this number of ranks.
std::string algorithms_with_counts(Collective collective, int rank_count);

}  // namespace farandole
