// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "coordinator/network.hpp"
#include "farandole/farandole.hpp"

namespace farandole {

/// Connects the controllers, by a communicator of their own.
///
/// Blocking  all_and() waits for ranks that have nothing to say. After each `patience` it calls
///           `call_idle`, which makes them take part. Once `stopping` is set it aborts everything
///           in flight in this process, since a cycle cannot be left halfway.
class CommunicatorNetwork : public coordinator::Network {
 public:
  CommunicatorNetwork(Communicator communicator, std::chrono::milliseconds patience,
                      std::function<void()> call_idle, const std::atomic<bool>& stopping)
      : communicator_(std::move(communicator)),
        patience_(patience),
        call_idle_(std::move(call_idle)),
        stopping_(stopping) {}

  Result<void> all_and(std::span<std::uint64_t> words) override;
  Result<void> send(std::int32_t rank, std::string_view message) override;
  Result<std::string> receive(std::int32_t rank) override;

 private:
  Communicator communicator_;
  std::chrono::milliseconds patience_;
  std::function<void()> call_idle_;
  const std::atomic<bool>& stopping_;
};

}  // namespace farandole
