// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/matcher.hpp"

#include <algorithm>

namespace farandole {

Matcher::Matcher(std::size_t rank_count, Pool pool) : pool_(pool), peers_(rank_count) {
  grow();
}

Matcher::~Matcher() = default;

void Matcher::grow() {
  const std::size_t count = std::max<std::size_t>(pool_.arrival_count, 1);
  const std::size_t block = pool_.block.value();
  Slab slab{std::make_unique<Arrival[]>(count),
            std::make_unique_for_overwrite<std::byte[]>(count * block)};
  for (std::size_t i = 0; i < count; ++i) {
    slab.arrivals[i].block = slab.blocks.get() + i * block;
    free_.push(slab.arrivals[i]);
  }
  slabs_.push_back(std::move(slab));
}

bool Matcher::agree(Receive& receive, const Envelope& envelope) {
  if (receive.bytes == envelope.bytes && receive.signature == envelope.signature) return true;
  receive.seen = envelope.signature;
  receive.seen_bytes = envelope.bytes;
  receive.fail(ErrorKind::kMismatch);
  return false;
}

Arrival* Matcher::post(Receive& receive) {
  receive.start();
  Peer& peer = of(receive.peer);
  if (peer.failed || cancelled(receive.tag.operation)) {
    receive.fail(peer.failed ? ErrorKind::kRankFailed : ErrorKind::kInternal);
    return nullptr;
  }
  Arrival* arrival =
      peer.early.take_first([&](const Arrival& a) { return a.envelope.tag == receive.tag; });
  if (arrival == nullptr) {
    peer.posted.push(receive);
    return nullptr;
  }
  (void)agree(receive, arrival->envelope);
  return arrival;
}

Matcher::Verdict Matcher::arrive(const Envelope& envelope) {
  Peer& peer = of(envelope.peer);
  if (peer.failed || cancelled(envelope.tag.operation)) return {Fate::kDiscarded};
  Receive* receive =
      peer.posted.take_first([&](const Receive& r) { return r.tag == envelope.tag; });
  if (receive == nullptr) return {Fate::kEarly};
  if (!agree(*receive, envelope)) return {Fate::kDiscarded};
  return {Fate::kMatched, receive};
}

Arrival& Matcher::set_aside(const Envelope& envelope, Bytes stored) {
  if (free_.empty()) grow();
  Arrival& arrival = *free_.pop();
  arrival.envelope = envelope;
  arrival.handle = 0;
  arrival.moved = Bytes{0};
  if (stored > pool_.block) {
    arrival.large = std::make_unique_for_overwrite<std::byte[]>(stored.value());
  }
  arrival.payload = arrival.large != nullptr ? arrival.large.get() : arrival.block;
  of(envelope.peer).early.push(arrival);
  return arrival;
}

void Matcher::release(Arrival& arrival) {
  arrival.large.reset();
  arrival.payload = nullptr;
  free_.push_front(arrival);  // its block is in the cache
}

/// Whether the operation is among the last kRemembered cancelled ones.
bool Matcher::remembers(OperationId operation) const {
  const auto end = remembered_.begin() + std::min(cancelled_count_, kRemembered);
  return std::find(remembered_.begin(), end, operation) != end;
}

Arrival* Matcher::cancel(OperationId operation) {
  if (!cancelled(operation)) remembered_[cancelled_count_++ % kRemembered] = operation;
  Arrivals dropped;
  for (Peer& peer : peers_) {
    peer.posted.take_all([&](Receive& receive) {
      if (receive.tag.operation != operation) return false;
      receive.fail(ErrorKind::kInternal);
      return true;
    });
    peer.early.take_all([&](Arrival& arrival) {
      if (arrival.envelope.tag.operation != operation) return false;
      dropped.push(arrival);
      return true;
    });
  }
  return dropped.front();
}

Arrival* Matcher::peer_failed(Rank rank) {
  Peer& peer = of(rank);
  peer.failed = true;
  while (Receive* receive = peer.posted.pop()) receive->fail(ErrorKind::kRankFailed);
  Arrival* dropped = peer.early.front();
  peer.early = Arrivals();
  return dropped;
}

}  // namespace farandole
