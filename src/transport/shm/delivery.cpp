// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/delivery.hpp"

#include <algorithm>

namespace farandole::shm {

void reply(Peer& peer, std::uint64_t entry, Reply answer) {
  if (entry >= kEntryCount) {
    peer.corrupt = true;
  } else if (!peer.failed) {
    publish(peer.in_entries[entry].reply, answer);
    peer.ring();
  }
}

void Delivery::deliver(const CopyPolicy& policy, Receive& receive, const std::byte* data,
                       std::size_t bytes) {
  const std::size_t of_all = buffers_of_all(receive);
  const bool cached = policy.cached(of_all);
  step_.spend(cached ? kCachedSteps * bytes : bytes);
  step_.moved = true;  // also for an empty message
  if (receive.consume != nullptr) {
    receive.deliver(receive.moved, data, Bytes{bytes});
    receive.moved += Bytes{bytes};
    return;
  }
  std::byte* target = receive.target + receive.moved.value();
  if (!cached) {
    policy.to_memory()(target, data, bytes);
  } else if (receive.peer_has_read) {
    policy.to_shared(shared_copy_, target, data, bytes);
  } else {
    policy.to_own(of_all)(target, data, bytes);
  }
  receive.moved += Bytes{bytes};
}

void Delivery::finish(Receive& receive) {
  received_bytes_ += receive.bytes.value();
  ++received_messages_;
  receive.finish();
}

std::size_t Delivery::may_move(const Receive& receive) {
  if (receive.behind == nullptr) return (receive.bytes - receive.moved).value();
  // The receive in front may have less than this one: it starts again if its sender gives up.
  const Bytes end = std::clamp(receive.behind->moved, receive.moved, receive.bytes);
  return (end - receive.moved).value();
}

std::size_t Delivery::buffers_of_all(const Receive& receive) const {
  return std::max(receive.buffer_bytes, receive.bytes).value() * ranks_on_host_;
}

}  // namespace farandole::shm
