// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "farandole/types.hpp"
#include "transport/doorbell.hpp"
#include "transport/queue.hpp"
#include "transport/shm/copy_policy.hpp"
#include "transport/shm/layout.hpp"
#include "transport/shm/mapping.hpp"
#include "transport/shm/peer_process.hpp"
#include "transport/shm/shared_copy.hpp"
#include "transport/transfer.hpp"

namespace farandole::shm {

/// Another rank of this host, or the place for one that may be added. The thread that connects
/// fills it in, then sets `connected`; from then on it belongs to the driver, except for `failed`
/// and `left`.
struct Peer {
  Rank rank;
  std::size_t local_index = 0;  // among the ranks of the host
  std::atomic<bool> connected{false};
  std::atomic<bool> failed{false};
  std::atomic<bool> left{false};  // on purpose
  bool corrupt = false;           // it published impossible values: the driver is to fail it

  CopyPolicy policy;
  Mapping mapping;
  PeerProcess process;
  bool reaches_us = false;  // it can copy from and to all memory of this process
  std::atomic<std::uint32_t>* armed = nullptr;
  std::string bell_address;
  int bell_fd = -1;       // of this rank's doorbell, to ring from
  std::size_t lines = 0;  // of either ring

  // To the peer.
  Ring* out = nullptr;
  Line* out_lines = nullptr;
  std::uint64_t out_token = 0;
  std::uint64_t written = 0;   // lines
  std::uint64_t writable = 0;  // lines below it are free, as last seen
  IntrusiveQueue<Send, Transfer> waiting;
  SharedCopy shared_copy;
  SharedCopy put_copy;  // into its targets

  // From the peer.
  Ring* in = nullptr;
  Line* in_lines = nullptr;
  std::uint64_t in_token = 0;
  Entry* in_entries = nullptr;
  std::uint64_t read = 0;   // lines
  std::uint64_t freed = 0;  // how many of these the peer has been told

  bool usable() const {
    return connected.load(std::memory_order_acquire) && !failed.load(std::memory_order_relaxed);
  }
  Slot& slot_at(Line* ring_lines, std::uint64_t line) const {
    return reinterpret_cast<Slot&>(ring_lines[index_in(line, lines)]);
  }
  /// Copies from or to ordinary memory of the peer. False if the kernel refuses, which makes the
  /// peer corrupt, or if the peer is gone, which the control plane reports.
  bool copy_from(std::uint64_t source, std::byte* target, std::size_t bytes) {
    return done(process.read(target, source, bytes));
  }
  bool copy_to(std::uint64_t target, const std::byte* source, std::size_t bytes) {
    return done(process.write(target, source, bytes));
  }
  void ring() { Doorbell::ring(*armed, bell_address, bell_fd); }

 private:
  bool done(PeerProcess::Outcome outcome) {
    corrupt |= outcome == PeerProcess::Outcome::kRefused;
    return outcome == PeerProcess::Outcome::kDone;
  }
};

/// The ranks of this host, this one included.
struct Peers {
  std::vector<std::unique_ptr<Peer>> local;  // by local_index; as many as there may ever be
  std::vector<std::atomic<Peer*>> by_rank;   // null for ranks of other hosts

  Peer* find(Rank rank) const {
    const auto index = static_cast<std::size_t>(rank.value());
    return rank.value() >= 0 && index < by_rank.size() ? by_rank[index].load() : nullptr;
  }
};

}  // namespace farandole::shm
