// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/row.hpp"
#include "transport/shm/row.hpp"

namespace farandole::inproc {

Result<std::vector<ThreadRank>> make_threads(int rank_count, bool peer_memory);
Result<std::vector<ThreadRank>> make_kernel_threads(int rank_count, bool peer_memory);

inline constexpr TransportRow kRow{
    .name = "inproc",
    .summary = "shared memory between threads of one process",
    .within_host = true,
    .cost = &shm::cost_of,
    .threads = &make_threads,
    .tuning_name = shm::kRow.name,
};
inline constexpr TransportRow kKernelRow{
    .name = "kernel",
    .summary = "the same, where two ranks have the kernel copy ordinary memory",
    .within_host = true,
    .cost = &shm::cost_of,
    .threads = &make_kernel_threads,
    .tuning_name = shm::kRow.name,
};

}  // namespace farandole::inproc
