// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/asymmetric_fence.hpp"
#include "device/cpu/memory.hpp"
#include "device/stream_device.hpp"
#include "engine/engine.hpp"
#include "transport/doorbell.hpp"
#include "transport/transport.hpp"

namespace farandole {

/// What moves bytes between the ranks; members are destroyed from the last to the first.
///
/// Threads   the pointers are constant once the engine exists; the types that they point to say
///           which threads may use them.
struct Fabric {
  std::optional<AsymmetricFence::User> fence;  // none when ranks are threads
  std::shared_ptr<Memory> memory;
  std::unique_ptr<Doorbell> doorbell;
  std::vector<std::unique_ptr<Transport>> transports;
  std::mutex transfers_mutex;
  std::map<std::shared_ptr<StreamDevice>, std::shared_ptr<HostTransfer>> transfers;
  std::unique_ptr<Engine> engine;
};

}  // namespace farandole
