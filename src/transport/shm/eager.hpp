// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "transport/matcher.hpp"
#include "transport/shm/delivery.hpp"
#include "transport/shm/layout.hpp"
#include "transport/shm/peer.hpp"
#include "transport/transfer.hpp"

// Eager: a short message lies in the slot that announces it. It is copied into the ring and out of
// it, and its send is done at once.
namespace farandole::shm::eager {

/// Whether the message goes this way. `place`: where the peer could read it in place, if it can.
inline bool suits(const CopyPolicy& policy, Bytes bytes,
                  const std::optional<std::uint64_t>& place) {
  return bytes.value() <= (place ? policy.slot_always_max() : policy.slot_max());
}

/// Sending: copies the message into its slot.
void write(Peer& peer, Slot& slot, Send& send);

/// Receiving: whether the message stays in the ring for now, since no receive waits for this peer
/// and setting the message aside would copy it twice.
bool may_stay(const Peer& peer, const Slot& slot, const Matcher& matcher);

/// Receiving: copies the message out of its slot, or from where it was set aside.
void deliver(Delivery& delivery, const Peer& peer, Receive& receive, const std::byte* payload);

}  // namespace farandole::shm::eager
