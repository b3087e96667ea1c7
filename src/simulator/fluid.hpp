// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "model/max_min.hpp"
#include "model/network.hpp"

namespace farandole {

/// Messages on the wires: the bytes that are left of each, and its rate. When some join or leave,
/// only those that share links with them, directly or over others, are looked at.
///
/// Threads   one at a time.
class Fluid {
 public:
  using Flow = std::uint32_t;
  /// A flow whose end has moved.
  struct End {
    Flow flow;
    double time;
  };

  explicit Fluid(const Network& network);
  /// Begins to move `bytes` over `links`; efficiency: share of its rate that arrives.
  Flow join(const std::vector<std::int32_t>& links, double bytes, double efficiency, double now);
  /// Removes a flow that has ended.
  void leave(Flow flow);
  /// Shares links again after flows have joined or left. Returns only the ends that have changed.
  const std::vector<End>& settle(double now);

 private:
  struct State {
    double left = 0, rate = 0, since = 0;  // bytes, bytes per second that arrive, seconds
    double efficiency = 1;
    std::uint32_t link_count = 0, seen = 0;
  };
  // One flow on one link: numbered flow * stride + which of its links.
  using Member = std::uint32_t;
  static constexpr Member kNone = 0xffffffff;
  struct Node {
    std::int32_t link = 0;
    Member before = kNone, after = kNone;  // among the link's members
  };
  struct Link {
    Member first = kNone;    // of its members
    std::uint32_t seen = 0;  // the last round_ that visited it
    double capacity = 0;     // bytes per second
  };
  Link& link(std::int32_t number) { return links_[static_cast<std::size_t>(number)]; }
  Node* nodes_of(Flow flow) { return &nodes_[flow * stride_]; }
  void collect(std::int32_t number);
  void visit(Flow flow);
  void share(double now);

  const std::size_t stride_;  // links of a flow at most
  std::vector<State> flows_;
  std::vector<Node> nodes_;  // [member]
  std::vector<Link> links_;
  std::vector<Flow> unused_;
  std::vector<std::int32_t> touched_;  // links whose flows have changed
  std::uint32_t round_ = 0;
  MaxMin max_min_;
  std::vector<Flow> together_;  // that share links
  FlowLinks together_links_;
  std::vector<double> rates_;
  std::vector<End> ends_;
};

}  // namespace farandole
