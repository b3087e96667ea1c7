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

/// The communicators of a process, the numbers that name them, and what is kept of those that are
/// gone.
///
/// Threads   any.
class CommunicatorRegistry {
 public:
  using Calls = std::map<std::string, Statistics::Calls>;  // by label of a plan

  void add(const std::shared_ptr<CommunicatorState>& communicator);
  /// Every communicator that still exists. The caller releases them without holding a lock.
  std::vector<std::shared_ptr<CommunicatorState>> living();
  /// One more than the highest number taken in this process; the world's is 0.
  std::uint32_t next_number();
  /// True if the number was free. It and all lower numbers are taken from now on.
  bool take_number(std::uint32_t number);
  /// A communicator is gone. Keeps its final state, which others may need when this rank leaves,
  /// for the last kRetiredMax communicators, and adds up what its plans counted.
  void retire(FinalState final_states, const Calls& calls);
  /// Of retired communicators: the final states of the last kRetiredMax, the calls of all.
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
