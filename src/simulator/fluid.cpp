// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "simulator/fluid.hpp"

#include <algorithm>
#include <limits>

namespace farandole {

Fluid::Fluid(const Network& network)
    : stride_(network.route_links_max()), max_min_(network.capacities()) {
  links_.reserve(network.capacities().size());
  for (const double capacity : network.capacities()) links_.push_back({.capacity = capacity});
}

Fluid::Flow Fluid::join(const std::vector<std::int32_t>& links, double bytes, double efficiency,
                        double now) {
  Flow flow = 0;
  if (unused_.empty()) {
    flow = static_cast<Flow>(flows_.size());
    flows_.emplace_back();
    nodes_.resize(nodes_.size() + stride_);
  } else {
    flow = unused_.back();
    unused_.pop_back();
  }
  flows_[flow] = {bytes, 0, now, efficiency, static_cast<std::uint32_t>(links.size()), 0};
  for (std::uint32_t i = 0; i < links.size(); ++i) {
    Member& first = link(links[i]).first;
    const auto member = static_cast<Member>(flow * stride_ + i);
    nodes_[member] = {links[i], kNone, first};
    if (first != kNone) nodes_[first].before = member;
    first = member;
    touched_.push_back(links[i]);
  }
  return flow;
}

void Fluid::leave(Flow flow) {
  for (std::uint32_t i = 0; i < flows_[flow].link_count; ++i) {
    const Node node = nodes_of(flow)[i];
    Member& first = link(node.link).first;
    (node.before == kNone ? first : nodes_[node.before].after) = node.after;
    if (node.after != kNone) nodes_[node.after].before = node.before;
    if (first != kNone) touched_.push_back(node.link);
  }
  unused_.push_back(flow);
}

const std::vector<Fluid::End>& Fluid::settle(double now) {
  ends_.clear();
  ++round_;
  for (const std::int32_t number : touched_) {
    if (link(number).seen == round_) continue;
    together_.clear();
    collect(number);
    for (std::size_t i = 0; i < together_.size(); ++i) visit(together_[i]);
    share(now);
  }
  touched_.clear();
  return ends_;
}

void Fluid::collect(std::int32_t number) {
  Link& at = link(number);
  if (at.seen == round_) return;
  at.seen = round_;
  for (Member member = at.first; member != kNone; member = nodes_[member].after) {
    const auto flow = static_cast<Flow>(member / stride_);
    if (flows_[flow].seen == round_) continue;
    flows_[flow].seen = round_;
    together_.push_back(flow);
  }
}

void Fluid::visit(Flow flow) {
  for (std::uint32_t i = 0; i < flows_[flow].link_count; ++i) collect(nodes_of(flow)[i].link);
}

void Fluid::share(double now) {
  if (together_.size() == 1) {
    const Flow alone = together_[0];
    double rate = std::numeric_limits<double>::infinity();
    for (std::uint32_t i = 0; i < flows_[alone].link_count; ++i) {
      rate = std::min(rate, link(nodes_of(alone)[i].link).capacity);
    }
    rates_.assign(1, rate);
  } else {
    together_links_.clear();
    for (const Flow flow : together_) {
      for (std::uint32_t i = 0; i < flows_[flow].link_count; ++i) {
        together_links_.links.push_back(nodes_of(flow)[i].link);
      }
      together_links_.close_flow();
    }
    max_min_.solve(together_links_, rates_);
  }
  for (std::size_t i = 0; i < together_.size(); ++i) {
    State& state = flows_[together_[i]];
    const double rate = rates_[i] * state.efficiency;
    if (rate == state.rate) continue;  // an unchanged rate has the same bits: same computation
    state.left = std::max(0.0, state.left - state.rate * (now - state.since));
    state.since = now;
    state.rate = rate;
    ends_.push_back({together_[i], now + state.left / rate});
  }
}

}  // namespace farandole
