// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/eager.hpp"

namespace farandole::shm::eager {

void write(Peer& peer, Slot& slot, Send& send) {
  const std::size_t bytes = send.bytes.value();
  peer.policy.to_shared(peer.shared_copy, slot.payload(bytes), send.source, bytes);
  send.finish();
}

bool may_stay(const Peer& peer, const Slot& slot, const Matcher& matcher) {
  const bool in_slot = slot.kind == Kind::kEager && slot.bytes > sizeof(slot.brief);
  return in_slot && !matcher.awaits(peer.rank) && !matcher.cancelled(slot.tag.operation);
}

void deliver(Delivery& delivery, const Peer& peer, Receive& receive, const std::byte* payload) {
  delivery.deliver(peer.policy, receive, payload, receive.bytes.value());
  delivery.finish(receive);
}

}  // namespace farandole::shm::eager
