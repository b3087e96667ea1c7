// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "device/cpu/memory.hpp"
#include "transport/shm/peer.hpp"
#include "transport/transfer.hpp"

namespace farandole::shm {

/// Tells peers where this rank's memory lies, so that they read or write it directly: an offset for
/// registered memory and, where the kernel copies, an address for any other.
///
/// Threads   the engine's driver only, and before there is one the thread that registers memory.
class Places {
 public:
  explicit Places(const Memory& memory) : memory_(memory) {}

  /// Registers a region of the rank's Memory, which is all that peers map; false for other memory.
  bool add(std::span<std::byte> region) {
    if (!memory_.offset_of(region.data(), Bytes{region.size()})) return false;
    registered_.push_back(region);
    return true;
  }
  void remove(std::span<std::byte> region) {
    std::erase_if(registered_, [&](const std::span<std::byte> one) {
      return one.data() == region.data() && one.size() == region.size();
    });
  }

  /// The place at which the peer reads or writes `data` directly; nothing if it cannot.
  std::optional<std::uint64_t> of(const Peer& peer, const std::byte* data,
                                  const Transfer& transfer) const {
    if (peer.policy.paths().in_place && is_registered(data, transfer.bytes.value())) {
      return static_cast<std::uint64_t>(data - memory_.base());
    }
    const std::size_t least = peer.policy.kernel_min(transfer.one_sends);
    if (!peer.reaches_us || transfer.bytes.value() < least) return std::nullopt;
    return reinterpret_cast<std::uint64_t>(data) | kPrivate;
  }

 private:
  bool is_registered(const std::byte* data, std::size_t bytes) const {
    return std::ranges::any_of(registered_, [&](const std::span<std::byte> region) {
      const auto offset =
          reinterpret_cast<std::uintptr_t>(data) - reinterpret_cast<std::uintptr_t>(region.data());
      return offset <= region.size() && bytes <= region.size() - offset;
    });
  }

  const Memory& memory_;
  std::vector<std::span<std::byte>> registered_;
};

}  // namespace farandole::shm
