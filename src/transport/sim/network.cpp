// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/sim/network.hpp"

#include <algorithm>
#include <utility>

namespace farandole::sim {
namespace {

/// The order of a heap: whether parcel `a` arrives later than `b`.
bool later(const Parcel* a, const Parcel* b) {
  return a->due != b->due ? a->due > b->due : a->order > b->order;
}

std::size_t index(Rank rank) {
  return static_cast<std::size_t>(rank.value());
}

}  // namespace

Network::Network(Options options)
    : options_(std::move(options)),
      random_(options_.seed),
      arriving_(static_cast<std::size_t>(options_.rank_count)),
      last_due_(arriving_.size() * arriving_.size()),
      cut_until_(last_due_.size()),
      dead_(arriving_.size(), false) {
  parcels_.resize(options_.reserve);
  free_.reserve(options_.reserve);
  for (Parcel& parcel : parcels_) free_.push_back(&parcel);
  for (auto& heap : arriving_) heap.reserve(options_.reserve);
}

// Not a standard distribution: a seed must give the same numbers with every library.
std::uint64_t Network::draw_locked(std::uint64_t most) {
  return most == 0 ? 0 : random_() % (most + 1);
}

std::uint64_t Network::draw(std::uint64_t most) {
  const std::lock_guard lock(mutex_);
  return draw_locked(most);
}

Clock::duration Network::delay() {
  const bool late = options_.late_every > 0 && draw_locked(options_.late_every - 1) == 0;
  const Clock::duration most = late ? options_.late_max : options_.delay_max;
  const auto more = static_cast<std::uint64_t>(
      std::max((most - options_.delay_min).count(), Clock::duration::rep{0}));
  return options_.delay_min + Clock::duration(static_cast<Clock::duration::rep>(draw_locked(more)));
}

Parcel& Network::obtain() {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) {
    if (free_.capacity() <= parcels_.size()) free_.reserve(2 * parcels_.size() + 64);
    return parcels_.emplace_back();
  }
  Parcel& parcel = *free_.back();
  free_.pop_back();
  return parcel;
}

void Network::release_locked(Parcel& parcel) {
  free_.push_back(&parcel);
}

void Network::release(Parcel& parcel) {
  const std::lock_guard lock(mutex_);
  release_locked(parcel);
}

void Network::put(Parcel& parcel) {
  const Rank to = parcel.to;
  Clock::time_point due;
  {
    const std::lock_guard lock(mutex_);
    if (dead_[index(parcel.from)] || dead_[index(to)]) return release_locked(parcel);
    const std::size_t between = pair(parcel.from, to);
    auto& last = last_due_[between][options_.overtakes ? channel_of(parcel.tag) : 0];
    due = std::max({Clock::now() + delay(), last, cut_until_[between]});
    last = due;
    parcel.due = due;
    parcel.order = ++order_;
    auto& heap = arriving_[index(to)];
    heap.push_back(&parcel);
    std::push_heap(heap.begin(), heap.end(), later);
  }
  // A rank that goes to sleep marks itself asleep before it looks for parcels, under the lock. So
  // either it has seen this parcel, or its mark is seen here.
  if (options_.wake && due != Clock::time_point::max()) options_.wake(to, due);
}

Parcel* Network::take(Rank to) {
  const std::lock_guard lock(mutex_);
  auto& heap = arriving_[index(to)];
  if (heap.empty() || heap.front()->due > Clock::now()) return nullptr;
  std::pop_heap(heap.begin(), heap.end(), later);
  Parcel* parcel = heap.back();
  heap.pop_back();
  return parcel;
}

void Network::cut(Rank from, Rank to, Clock::time_point until) {
  const std::lock_guard lock(mutex_);
  cut_until_[pair(from, to)] = until;
}

void Network::kill(Rank rank) {
  const std::lock_guard lock(mutex_);
  dead_[index(rank)] = true;
  for (Parcel* parcel : arriving_[index(rank)]) release_locked(*parcel);
  arriving_[index(rank)].clear();
}

std::size_t Network::in_use() const {
  const std::lock_guard lock(mutex_);
  return parcels_.size() - free_.size();
}

}  // namespace farandole::sim
