// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace farandole {

/// The hosts of a Slurm node list, in order: "n[03-05,9],gpu1" is n03, n04, n05, n9, gpu1; several
/// brackets in one name multiply out. None if the list is malformed or has more than
/// kSlurmHostsMax hosts.
std::optional<std::vector<std::string>> expand_node_list(std::string_view list);

/// Slurm's tasks per node, in order: "2(x3),1" is 2, 2, 2, 1. None if malformed.
std::optional<std::vector<int>> expand_task_counts(std::string_view list);

inline constexpr std::size_t kSlurmHostsMax = 1'000'000;

}  // namespace farandole
