// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
// How Links makes new links: calls to the neighbours that the tree gives this rank.
#include <algorithm>
#include <chrono>
#include <utility>

#include "bootstrap/links.hpp"

namespace farandole {
namespace {

using namespace std::chrono_literals;
// The child calls its parent at once; the parent calls the child after this time.
constexpr auto kParentDelay = 100ms;
constexpr auto kRetry = 20ms;
// A refused call means a death, but the notice of an orderly departure may still be on its way.
constexpr auto kRefusedTime = 200ms;
constexpr std::chrono::milliseconds kDialTime = 5s, kDialTimeMin = 250ms;
constexpr int kDialsPerTimeout = 6;  // dial anew: TCP resends late what was lost in an outage

}  // namespace

bool Links::wanted(int rank) const {
  const auto link = links_.find(rank);
  const bool linked = link != links_.end() && !link->second.dead;
  if (linked || log_.departure(rank) || phase_ == Phase::kClosing) return false;
  const auto call = calls_.find(rank);
  return (call != calls_.end() && call->second.refused_at) ||
         std::binary_search(neighbours_.begin(), neighbours_.end(), rank);
}

/// A rank that refuses calls is presumed gone, so that several dead ranks between this one and the
/// next living one are detected in parallel.
void Links::call_neighbours(Clock::duration delay) {
  Gone presumed = log_.gone();
  presumed[static_cast<std::size_t>(self_)] = false;  // it has neighbours until it has left
  for (const auto& [rank, call] : calls_) {
    if (call.refused_at) presumed[static_cast<std::size_t>(rank)] = true;
  }
  neighbours_ = neighbours_of(self_, presumed);
  const auto now = Clock::now();
  for (const int rank : neighbours_) {
    if (!wanted(rank)) continue;
    const auto due = now + delay + (rank > self_ ? kParentDelay : 0ms);
    Call& call = calls_.try_emplace(rank, Call{due, due}).first->second;
    call.due = std::min(call.due, due);
  }
}

void Links::hurry_calls() {
  const auto now = Clock::now();
  for (auto& [rank, call] : calls_) {
    call.due = std::min(call.due, now + (rank > self_ ? kParentDelay : 0ms));
  }
}

void Links::attempt(int rank, Call& call) {
  if (!wanted(rank)) return;
  call.dial.emplace(
      addresses_[static_cast<std::size_t>(rank)], job_.secret,
      Identity{Purpose::kControl, self_, roster_.run, ""},
      Deadline::after(std::clamp(job_.timeout / kDialsPerTimeout, kDialTimeMin, kDialTime)));
}

void Links::settle(int rank, Call& call) {
  if (call.dial->outcome() == Dial::Outcome::kWorking) return;
  Dial dial = std::move(*call.dial);
  call.dial.reset();
  const auto now = Clock::now();
  call.due = now + kRetry;
  const bool nobody = dial.outcome() == Dial::Outcome::kRefused ||
                      dial.outcome() == Dial::Outcome::kOfAnotherJob ||
                      dial.answered(Verdict::kAnotherJob);
  if (nobody) return refused(rank, call);
  if (std::exchange(call.refused_at, std::nullopt)) call_neighbours(0ms);
  if (dial.answered(Verdict::kWelcome)) return enter(rank, dial.take());
  if (dial.answered(Verdict::kGone)) return cut_off(rank, "is counted as failed");
  if (dial.outcome() == Dial::Outcome::kAnswered) {
    call.started_at = now;  // it lives, but is not ready or is about to call here
  } else if (now >= call.started_at + job_.timeout) {
    learn(Departure{Rank{rank}, false, "went silent for " + describe(job_.timeout), ""});
  }
}

void Links::refused(int rank, Call& call) {
  const auto now = Clock::now();
  if (!call.refused_at) {
    call.refused_at = now;
    call_neighbours(0ms);
  }
  if (now < *call.refused_at + kRefusedTime) return;
  learn(Departure{Rank{rank}, false, "died", ""});
}

}  // namespace farandole
