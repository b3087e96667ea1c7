// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "coordinator/cache.hpp"

namespace farandole::coordinator {

std::optional<std::uint32_t> Cache::find(const TensorRequest& request) const {
  const auto found = positions_.find(request.name);
  if (found == positions_.end()) return std::nullopt;
  const TensorRequest& agreed = *entries_[found->second].agreed;
  if (&agreed != &request && !agree(agreed, request)) return std::nullopt;
  return found->second;
}

std::optional<std::uint32_t> Cache::position(std::string_view name) const {
  const auto found = positions_.find(name);
  if (found == positions_.end()) return std::nullopt;
  return found->second;
}

void Cache::put(const SharedRequest& agreed) {
  if (capacity_ == 0) return;
  if (const auto found = positions_.find(agreed->name); found != positions_.end()) {
    const std::uint32_t position = found->second;
    positions_.erase(found);  // its key lives in the old request
    entries_[position].agreed = agreed;
    positions_.emplace(agreed->name, position);
    touch(position);
    return;
  }
  if (size() >= capacity_) {
    release(oldest_);
    ++evictions_;
  }
  std::uint32_t position = extent();
  if (free_.empty()) {
    entries_.emplace_back();
  } else {
    position = *free_.begin();
    free_.erase(free_.begin());
  }
  entries_[position].agreed = agreed;
  positions_.emplace(agreed->name, position);
  link_newest(position);
}

void Cache::touch(std::uint32_t position) {
  if (position == newest_) return;
  unlink(position);
  link_newest(position);
}

bool Cache::erase(std::string_view name) {
  const auto found = positions_.find(name);
  if (found == positions_.end()) return false;
  release(found->second);
  return true;
}

std::string Cache::fingerprint() const {
  std::string text;
  for (std::uint32_t position = 0; position < extent(); ++position) {
    if (!used(position)) continue;
    const TensorRequest& agreed = *at(position);
    text += std::to_string(position) + ": " + agreed.name + ": " + describe(agreed) + "\n";
  }
  text += "oldest first:";
  for (std::uint32_t position = oldest_; position != kNone; position = entries_[position].newer) {
    text += " " + std::to_string(position);
  }
  return text;
}

void Cache::link_newest(std::uint32_t position) {
  entries_[position].older = newest_;
  entries_[position].newer = kNone;
  (newest_ == kNone ? oldest_ : entries_[newest_].newer) = position;
  newest_ = position;
}

void Cache::unlink(std::uint32_t position) {
  const auto [agreed, older, newer] = entries_[position];
  (older == kNone ? oldest_ : entries_[older].newer) = newer;
  (newer == kNone ? newest_ : entries_[newer].older) = older;
}

void Cache::release(std::uint32_t position) {
  unlink(position);
  positions_.erase(entries_[position].agreed->name);
  entries_[position].agreed = nullptr;
  free_.insert(position);
  while (!entries_.empty() && entries_.back().agreed == nullptr) {
    entries_.pop_back();
    free_.erase(extent());
  }
}

}  // namespace farandole::coordinator
