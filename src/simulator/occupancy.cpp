// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "simulator/occupancy.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace farandole {
namespace {

// Equal times are computed by different sums; times at most this far apart, relatively, are one
// time.
constexpr double kSameTime = 1e-9;

bool same(double a, double b) {
  return std::abs(a - b) <= kSameTime * std::max(a, b);
}

bool not_before(double time, double earliest) {
  return time >= earliest - kSameTime * earliest;
}

}  // namespace

Occupancy::Occupancy(const Network& network)
    : busy_until_(network.capacities().size(), 0.0), link_bytes_(busy_until_.size(), 0.0) {}

void Occupancy::occupy(Wave& wave) {
  if (!exact_) return;
  const bool again = last_ == &wave;
  if (!again && last_ != nullptr) leave(*last_);
  exact_ = groups_agree(wave, again) && (again || links_are_idle(wave));
  last_shift_ = 0;
  last_ = &wave;
}

bool Occupancy::groups_agree(Wave& wave, bool again) {
  constexpr double kUnset = std::numeric_limits<double>::quiet_NaN();
  begin_.assign(wave.pattern->group_count, kUnset);
  end_.assign(wave.pattern->group_count, kUnset);
  for (std::size_t flow = 0; flow < wave.flows.size(); ++flow) {
    if (wave.pattern->groups[flow] < 0) continue;
    const auto group = static_cast<std::size_t>(wave.pattern->groups[flow]);
    const Wave::Message& message = wave.messages[wave.flows[flow]];
    if (std::isnan(begin_[group])) {
      begin_[group] = message.begin;
      end_[group] = message.end;
      if (again && !not_before(message.begin, wave.group_end[group] + last_shift_)) return false;
    }
    if (!same(begin_[group], message.begin) || !same(end_[group], message.end)) return false;
  }
  wave.group_end = end_;
  return true;
}

bool Occupancy::links_are_idle(const Wave& wave) const {
  for (std::size_t flow = 0; flow < wave.flows.size(); ++flow) {
    const double begin = wave.messages[wave.flows[flow]].begin;
    for (const std::int32_t link : wave.pattern->links.of(flow)) {
      if (!not_before(begin, busy_until_[static_cast<std::size_t>(link)])) return false;
    }
  }
  return true;
}

void Occupancy::leave(const Wave& wave) {
  for (std::size_t flow = 0; flow < wave.flows.size(); ++flow) {
    const double end = wave.messages[wave.flows[flow]].end + last_shift_;
    for (const std::int32_t link : wave.pattern->links.of(flow)) {
      double& until = busy_until_[static_cast<std::size_t>(link)];
      until = std::max(until, end);
    }
  }
}

void Occupancy::shift(double seconds, bool drifts) {
  if (!exact_) return;
  exact_ = !drifts;
  last_shift_ += seconds;
  for (double& until : busy_until_) until += until > 0 ? seconds : 0;
}

void Occupancy::retire(const Wave& wave) {
  if (last_ == &wave) {
    if (exact_) leave(wave);
    last_ = nullptr;
  }
  const auto times = static_cast<double>(wave.repeats);
  for (std::size_t flow = 0; flow < wave.flows.size(); ++flow) {
    const double bytes = times * wave.messages[wave.flows[flow]].bytes;
    for (const std::int32_t link : wave.pattern->links.of(flow)) {
      link_bytes_[static_cast<std::size_t>(link)] += bytes;
    }
  }
}

}  // namespace farandole
