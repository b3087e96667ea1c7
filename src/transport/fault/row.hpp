// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/inproc/row.hpp"
#include "transport/row.hpp"

namespace farandole::fault {

Result<std::vector<ThreadRank>> make_threads(int rank_count, bool peer_memory);

inline constexpr TransportRow kRow{
    .name = "fault",
    .summary = "the same, with random delays",
    .within_host = true,
    .cost = inproc::kRow.cost,
    .threads = &make_threads,
    .tuning_name = inproc::kRow.tuning_name,
};

}  // namespace farandole::fault
