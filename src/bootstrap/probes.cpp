// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/probes.hpp"

#include <algorithm>
#include <chrono>

namespace farandole {
namespace {

using namespace std::chrono_literals;
constexpr int kProbesPerTimeout = 12;
constexpr Clock::duration kIntervalMin = 50ms;
// One probe may be lost, or reach a process that has no time.
constexpr int kUnansweredMax = 1;

}  // namespace

Probes::Probes(const Job& job, const Roster& roster)
    : job_(job),
      roster_(roster),
      interval_(std::max<Clock::duration>(job.timeout / kProbesPerTimeout, kIntervalMin)) {}

void Probes::want(int rank) {
  const auto now = Clock::now();
  probes_.try_emplace(rank, Probe{now, now}).first->second.wanted_until = now + 4 * interval_;
}

void Probes::watch(PollSet& set) {
  const auto now = Clock::now();
  std::erase_if(probes_, [now](const auto& entry) { return now >= entry.second.wanted_until; });
  for (auto& [rank, probe] : probes_) {
    set.wake_by(probe.wanted_until);
    if (!probe.dial && now >= probe.due) {
      const auto address = numeric_address(roster_.listeners[static_cast<std::size_t>(rank)]);
      probe.due = now + interval_;
      probe.dial.emplace(address ? *address : Address{}, job_.secret,
                         Identity{Purpose::kProbe, job_.rank.value(), roster_.run, ""},
                         Deadline::after(interval_));
    }
    if (probe.dial) {
      probe.dial->watch(set);
    } else {
      set.wake_by(probe.due);
    }
  }
}

void Probes::serve(const PollSet& set) {
  for (auto& [rank, probe] : probes_) {
    if (!probe.dial) continue;
    probe.dial->serve(set);
    if (probe.dial->outcome() != Dial::Outcome::kWorking) settle(probe);
  }
}

void Probes::settle(Probe& probe) {
  if (probe.dial->outcome() == Dial::Outcome::kAnswered) {
    probe.answered = Clock::now();
    if (!probe.reachable) probe.reachable = probe.answered;
    probe.unanswered = 0;
  } else if (++probe.unanswered > kUnansweredMax) {
    probe.reachable.reset();
  }
  probe.dial.reset();
}

std::optional<Clock::time_point> Probes::answered(int rank) const {
  const auto found = probes_.find(rank);
  return found == probes_.end() ? std::nullopt : found->second.answered;
}

std::optional<Clock::time_point> Probes::reachable_since(int rank) const {
  const auto found = probes_.find(rank);
  return found == probes_.end() ? std::nullopt : found->second.reachable;
}

}  // namespace farandole
