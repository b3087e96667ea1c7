// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace farandole {

/// Flows as rows of link numbers: flow i uses links[first[i]] up to links[first[i + 1]].
struct FlowLinks {
  std::vector<std::uint32_t> first = {0};  // [flow_count + 1]
  std::vector<std::int32_t> links;

  std::size_t flow_count() const { return first.size() - 1; }
  std::span<const std::int32_t> of(std::size_t flow) const {
    return std::span(links).subspan(first[flow], first[flow + 1] - first[flow]);
  }
  void clear() {
    first.assign(1, 0);
    links.clear();
  }
  /// Ends the row of links that were appended since the last one.
  void close_flow() { first.push_back(static_cast<std::uint32_t>(links.size())); }
};

/// Shares links among flows: no flow can get more without taking it from a flow that has no more.
///
/// Memory    one entry per link, kept between calls; a call costs what its flows use, times the
///           number of different shares.
/// Threads   one at a time.
/// Source    progressive filling, Bertsekas and Gallager, Data Networks §6.5.2
class MaxMin {
 public:
  /// Bytes per second of each link; must outlive this object.
  explicit MaxMin(std::span<const double> capacities);
  /// Rates in bytes per second, [flow_count]; infinite for a flow without links.
  void solve(const FlowLinks& flows, std::vector<double>& rates);

 private:
  double lowest_share();

  std::span<const double> capacities_;
  std::vector<double> left_;           // [link]: capacity that is not given away
  std::vector<std::int32_t> sharing_;  // [link]: flows that have no rate yet; 0 between calls
  std::vector<std::int32_t> active_;   // links with such flows
  std::vector<std::uint32_t> open_;    // flows without a rate
};

}  // namespace farandole
