// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/final_state.hpp"
#include "farandole/farandole.hpp"

namespace farandole {

struct CommunicatorState;

/// The communicators of a process, the numbers that name them, and what is left of those that are
/// no more.
///
/// Threads   any.
class CommunicatorRegistry {
 public:
  using Calls = std::map<std::string, Statistics::Calls>;  // by label of a plan

  void add(const std::shared_ptr<CommunicatorState>& communicator);
  /// Every communicator that is still there. The caller drops them without holding a lock.
  std::vector<std::shared_ptr<CommunicatorState>> living();
  /// The least number that no communicator of this process has had; the world's is 0.
  std::uint32_t next_number();
  /// True if the number was free; it and those below are not from now on.
  bool take_number(std::uint32_t number);
  /// A communicator is no more: what others may still have to know when this rank leaves, of the
  /// last kRetiredMax, and what its plans counted.
  void retire(FinalState final_states, const Calls& calls);
  /// Of all that were retired.
  std::vector<FinalState> final_states();
  Calls retired_calls();

 private:
  static constexpr std::size_t kRetiredMax = 256;

  std::mutex mutex_;
  std::vector<std::weak_ptr<CommunicatorState>> communicators_;
  std::uint32_t last_number_ = 0;
  std::deque<FinalState> retired_;
  Calls retired_calls_;
};

}  // namespace farandole
