// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "model/max_min.hpp"

#include <algorithm>
#include <limits>

namespace farandole {
namespace {

// Shares that differ by less are equal: they come from the same numbers in another order.
constexpr double kSameShare = 1 + 1e-12;

}  // namespace

MaxMin::MaxMin(std::span<const double> capacities)
    : capacities_(capacities), left_(capacities.size()), sharing_(capacities.size()) {}

void MaxMin::solve(const FlowLinks& flows, std::vector<double>& rates) {
  rates.assign(flows.flow_count(), std::numeric_limits<double>::infinity());
  active_.clear();
  open_.clear();
  for (std::size_t flow = 0; flow < flows.flow_count(); ++flow) {
    if (!flows.of(flow).empty()) open_.push_back(static_cast<std::uint32_t>(flow));
  }
  for (const std::int32_t link : flows.links) {
    const auto l = static_cast<std::size_t>(link);
    if (sharing_[l]++ > 0) continue;
    left_[l] = capacities_[l];
    active_.push_back(link);
  }
  while (!open_.empty()) {
    const double share = lowest_share(), limit = share * kSameShare;
    const auto is_limited = [&](std::int32_t link) {
      const auto l = static_cast<std::size_t>(link);
      return left_[l] <= limit * sharing_[l];
    };
    // First find all limited flows; only a second pass gives them their rates, which changes
    // `left_`.
    const auto limited = std::partition(open_.begin(), open_.end(), [&](std::uint32_t flow) {
      const auto links = flows.of(flow);
      return std::none_of(links.begin(), links.end(), is_limited);
    });
    for (auto flow = limited; flow != open_.end(); ++flow) {
      rates[*flow] = share;
      for (const std::int32_t link : flows.of(*flow)) {
        const auto l = static_cast<std::size_t>(link);
        left_[l] -= share;
        --sharing_[l];
      }
    }
    open_.erase(limited, open_.end());
  }
}

double MaxMin::lowest_share() {
  double lowest = std::numeric_limits<double>::infinity();
  std::size_t kept = 0;
  for (const std::int32_t link : active_) {
    const auto l = static_cast<std::size_t>(link);
    if (sharing_[l] == 0) continue;
    active_[kept++] = link;
    lowest = std::min(lowest, left_[l] / sharing_[l]);
  }
  active_.resize(kept);
  return lowest;
}

}  // namespace farandole
