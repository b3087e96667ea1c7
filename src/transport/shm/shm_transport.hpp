// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "bootstrap/member.hpp"
#include "device/cpu/memory.hpp"
#include "transport/doorbell.hpp"
#include "transport/shm/copy_policy.hpp"
#include "transport/shm/inbox.hpp"
#include "transport/shm/mapping.hpp"
#include "transport/shm/outbox.hpp"
#include "transport/shm/peer.hpp"
#include "transport/shm/places.hpp"
#include "transport/transport.hpp"

namespace farandole {

/// Messages between the ranks of one host, through memory that they map from each other.
///
/// Each message takes one of four ways, each with a file: eager (in its slot), in_place (the
/// receiver reads the source), staged (through a pipe) and put (the sender writes the target).
/// copy_policy.hpp decides which; layout.hpp says what lies where in memory.
///
/// The order of start-up: Memory; Doorbell on Doorbell::word_in(memory); record() into this rank's
/// Member; rendezvous; create(); register_memory(). Memory and Doorbell outlive the transport, and
/// one Memory serves one transport.
class ShmTransport : public Transport {
 public:
  using MapPeer = std::function<Result<shm::Mapping>(const Member& member, Bytes most)>;
  struct Options {
    // Have the kernel copy unregistered memory between the processes of two ranks, if both can.
    bool all_memory = false;
    MapPeer map = &shm::Mapping::open;
    shm::CopyPaths paths;
    // Ranks for which there is room, including those that are added later; equal on all ranks of
    // the host. Ranks that are there from the start always have room.
    std::size_t rank_count_max = 0, host_rank_count_max = 0;
  };

  /// What peers need to reach this process: "shm.memory" (MemoryEntry), "shm.token" (random, also
  /// in the memory, so that a wrong mapping is noticed), "shm.layout" (version of layout.hpp),
  /// "shm.process" (see PeerProcess), "shm.doorbell", and "shm.fence" if this process has an
  /// AsymmetricFence. The process keeps that fence only if all ranks of the host have one.
  static Result<std::map<std::string, std::string>> record(Memory& memory, const Doorbell& bell);

  /// Whether the peer is on the same host and has published how to reach it.
  static bool reaches(const Member& self, const Member& peer) {
    return peer.host_id == self.host_id && peer.record.contains("shm.memory");
  }

  /// Makes the transport of rank `self` of `members`; its peers are those that it reaches. Shrinks
  /// `memory` to the size at which each rank of the host can map the memories of all.
  ///
  /// Errors    kInvalidArgument when Memory is exhausted, kUnsupported if `self` published no
  ///           record.
  static Result<std::unique_ptr<ShmTransport>> create(Rank self, const Members& members,
                                                      Memory& memory, Doorbell& bell,
                                                      Options options);

  const Capabilities& capabilities() const override { return capabilities_; }
  TransportCounters counters() const override;
  Result<void> add_peer(const Member& peer, Deadline deadline) override;
  Result<void> connect(std::span<const Rank> peers, Deadline deadline) override;
  /// Registers memory that lies in the rank's Memory, which peers map; other memory is not taken.
  Result<bool> register_memory(std::span<std::byte> memory) override;
  void release_memory(std::span<std::byte> memory) override { places_.remove(memory); }
  void post(Send& send) override;
  void post(Receive& receive) override;
  bool progress() override;
  bool cancel(OperationId operation) override;
  void peer_failed(Rank peer) override;
  void peer_left(Rank peer) override;

 private:
  ShmTransport(Rank self, const Members& members, Memory& memory, Doorbell& bell, Options options);
  Result<void> lay_out();
  Result<void> introduce(const Member& member);
  ProcessName name_of(const shm::Peer& peer) const;
  Result<shm::Peer*> connectable(Rank rank) const;
  Result<void> begin(shm::Peer& peer);
  Result<void> finish(shm::Peer& peer, Deadline deadline);
  Result<void> map(shm::Peer& peer);
  Result<void> offer_ring(shm::Peer& peer);
  bool join_ring(shm::Peer& peer);
  shm::Peer* usable(Transfer& transfer);
  std::size_t host_rank_count_max() const { return peers_.local.size(); }

  const Rank self_;
  Memory& memory_;
  Doorbell& bell_;
  const Options options_;
  Capabilities capabilities_;
  std::mutex connect_mutex_;
  Members members_;  // under connect_mutex_ once there is a driver
  const Bytes mapped_max_;
  shm::Places places_;
  shm::Peers peers_;
  std::size_t introduced_ = 0;  // how many of peers_.local
  std::size_t self_index_ = 0;
  shm::Ring* rings_ = nullptr;  // this rank's, [host_rank_count_max()]
  std::unique_ptr<shm::Outbox> outbox_;
  std::unique_ptr<shm::Inbox> inbox_;
};

}  // namespace farandole
