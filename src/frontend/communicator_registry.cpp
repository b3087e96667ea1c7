// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "frontend/communicator_registry.hpp"

#include <utility>

namespace farandole {

void CommunicatorRegistry::add(const std::shared_ptr<CommunicatorState>& communicator) {
  const std::lock_guard lock(mutex_);
  std::erase_if(communicators_, [](const auto& weak) { return weak.expired(); });
  communicators_.push_back(communicator);
}

std::vector<std::shared_ptr<CommunicatorState>> CommunicatorRegistry::living() {
  std::vector<std::shared_ptr<CommunicatorState>> living;
  const std::lock_guard lock(mutex_);
  for (const auto& weak : communicators_) {
    if (auto communicator = weak.lock()) living.push_back(std::move(communicator));
  }
  return living;
}

std::uint32_t CommunicatorRegistry::next_number() {
  const std::lock_guard lock(mutex_);
  return last_number_ + 1;
}

bool CommunicatorRegistry::take_number(std::uint32_t number) {
  const std::lock_guard lock(mutex_);
  if (number <= last_number_) return false;
  last_number_ = number;
  return true;
}

void CommunicatorRegistry::retire(FinalState final_states, const Calls& calls) {
  const std::lock_guard lock(mutex_);
  retired_.push_back(std::move(final_states));
  if (retired_.size() > kRetiredMax) retired_.pop_front();
  for (const auto& [label, more] : calls) {
    Statistics::Calls& its = retired_calls_[label];
    its.calls += more.calls;
    its.bytes += more.bytes;
  }
}

std::vector<FinalState> CommunicatorRegistry::final_states() {
  const std::lock_guard lock(mutex_);
  return {retired_.begin(), retired_.end()};
}

CommunicatorRegistry::Calls CommunicatorRegistry::retired_calls() {
  const std::lock_guard lock(mutex_);
  return retired_calls_;
}

}  // namespace farandole
