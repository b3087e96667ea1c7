// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "bootstrap/member.hpp"
#include "device/cpu/memory.hpp"
#include "transport/doorbell.hpp"
#include "transport/shm/inbox.hpp"
#include "transport/shm/mapping.hpp"
#include "transport/shm/outbox.hpp"
#include "transport/shm/peer.hpp"
#include "transport/transport.hpp"

namespace farandole {

/// Messages between the ranks of one host, through memory that they map from each other.
///
/// Up to 4096 bytes a message is copied once into a ring and once out of it. Above that, a
/// source in library-owned Memory is read in place by the receiver. Any other one is staged
/// through a pipe of blocks; or, between two ranks, up to 16 KiB copied through the ring as well,
/// and above that read by the kernel, where that pays and may be done. shm/layout.hpp says what
/// lies where.
///
/// The order of start-up: Memory; Doorbell on bell_word(memory); cards() into this rank's
/// Member; rendezvous; create(). Memory and Doorbell outlive the transport, and one Memory
/// serves one transport.
class ShmTransport : public Transport {
 public:
  using MapPeer = std::function<Result<shm::Mapping>(const Member& member, Bytes most)>;
  struct Options {
    bool peer_memory = true;  // false: a source in Memory is treated as any other
    // Have the kernel copy between the processes of two ranks what is in no Memory, if both can.
    bool all_memory = false;
    MapPeer map = &shm::Mapping::open;
  };

  /// The word in `memory` that this rank's Doorbell is to arm.
  static std::atomic<std::uint32_t>& bell_word(Memory& memory);

  /// What peers need to reach this process: "shm.memory" (MemoryCard), "shm.token" (random,
  /// also in the memory, so that a wrong mapping is noticed), "shm.layout" (version of layout.hpp),
  /// "shm.process" (see PeerProcess),
  /// "shm.doorbell", and "shm.fence" if this process has an AsymmetricFence, which it keeps if all
  /// ranks of the host have.
  static Result<std::map<std::string, std::string>> cards(Memory& memory, const Doorbell& bell);

  /// For rank `self` of `members`; its peers are the members of equal host_id with cards. Shrinks
  /// `memory` to what each of them can map of all.
  /// Errors    kInvalidArgument when Memory is exhausted, kUnsupported without own cards.
  static Result<std::unique_ptr<ShmTransport>> create(Rank self, const Members& members,
                                                      Memory& memory, Doorbell& bell,
                                                      Options options);

  const Capabilities& capabilities() const override { return capabilities_; }
  TransportCounters counters() const override;
  Result<void> connect(std::span<const Rank> peers, Deadline deadline) override;
  void post(Send& send) override;
  void post(Receive& receive) override;
  bool progress() override;
  bool cancel(OperationId operation) override;
  void peer_failed(Rank peer) override;
  void peer_left(Rank peer) override;

 private:
  ShmTransport(Rank self, const Members& members, Memory& memory, Doorbell& bell, Options options);
  Result<void> lay_out();
  ProcessName name_of(const shm::Peer& peer) const;
  Result<shm::Peer*> connectable(Rank rank) const;
  Result<void> offer_ring(shm::Peer& peer);
  Result<void> map(shm::Peer& peer);
  bool join_ring(shm::Peer& peer);
  shm::Peer* usable(Transfer& transfer);

  const Rank self_;
  const Members members_;
  Memory& memory_;
  Doorbell& bell_;
  const Options options_;
  Capabilities capabilities_;
  std::mutex connect_mutex_;
  const Bytes mapped_max_;
  shm::Peers peers_;
  std::size_t self_index_ = 0;
  shm::Ring* rings_ = nullptr;  // this rank's, [peers_.local.size()]
  std::unique_ptr<shm::Outbox> outbox_;
  std::unique_ptr<shm::Inbox> inbox_;
};

}  // namespace farandole
