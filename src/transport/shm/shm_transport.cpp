// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/shm_transport.hpp"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

namespace farandole {

using shm::Entry;
using shm::Header;
using shm::Line;
using shm::Peer;
using shm::Ring;
using shm::Slot;

namespace {

Header& header_of(Memory& memory) {
  return *reinterpret_cast<Header*>(memory.header());
}

/// `count` default-valued objects in library memory, aligned to a page.
template <class T>
Result<T*> place(Memory& memory, std::size_t count) {
  const std::size_t page = 4096;
  auto block = memory.allocate(Bytes{std::max(count * sizeof(T), page)});
  if (!block) return block.error();
  T* first = reinterpret_cast<T*>(*block);
  for (std::size_t i = 0; i < count; ++i) new (first + i) T{};
  return first;
}

std::uint64_t offset_in(const Memory& memory, const void* data) {
  return static_cast<std::uint64_t>(static_cast<const std::byte*>(data) - memory.base());
}

std::string text(Rank rank) {
  return "rank " + std::to_string(rank.value());
}

}  // namespace

Result<std::map<std::string, std::string>> ShmTransport::record(Memory& memory,
                                                                const Doorbell& bell) {
  std::uint64_t token = 0;
  if (::getrandom(&token, sizeof(token), 0) != sizeof(token)) {
    return Error{ErrorKind::kInternal,
                 std::string("getrandom gave no token: ") + std::strerror(errno) + "."};
  }
  header_of(memory).token = token;
  std::map<std::string, std::string> record{
      {"shm.memory",
       shm::MemoryEntry{::getpid(), memory.fd(), memory.file_bytes().value(), memory.room().value()}
           .text()},
      {"shm.token", std::to_string(token)},
      {"shm.layout", std::to_string(shm::kLayoutVersion)},
      {"shm.process", shm::PeerProcess::entry(&header_of(memory).token)},
      {"shm.doorbell", bell.address()}};
  if (AsymmetricFence::enabled()) record.emplace("shm.fence", "asymmetric");
  return record;
}

ShmTransport::ShmTransport(Rank self, const Members& members, Memory& memory, Doorbell& bell,
                           Options options)
    : self_(self),
      memory_(memory),
      bell_(bell),
      options_(std::move(options)),
      capabilities_{.name = "shm", .follows = true},
      members_(members),
      mapped_max_(
          shm::mapped_max(members_, members_[static_cast<std::size_t>(self.value())].host_id)),
      places_(memory) {
  memory_.shrink(mapped_max_);
  const Member& own = members[static_cast<std::size_t>(self.value())];
  const auto here = static_cast<std::size_t>(
      std::ranges::count_if(members, [&](const Member& member) { return reaches(own, member); }));
  for (std::size_t i = 0; i < std::max(here, options_.host_rank_count_max); ++i) {
    peers_.local.push_back(std::make_unique<Peer>());
  }
  members_.resize(std::max(members_.size(), options_.rank_count_max));
  peers_.by_rank = std::vector<std::atomic<Peer*>>(members_.size());
  for (const Member& member : members) {
    if (reaches(own, member)) (void)introduce(member);
  }
  capabilities_.follow_bytes = Bytes{shm::in_slot_max(host_rank_count_max())};
}

/// Gives a rank of this host its place among the peers.
Result<void> ShmTransport::introduce(const Member& member) {
  const auto index = static_cast<std::size_t>(member.rank.value());
  if (member.rank.value() < 0 || index >= members_.size() || introduced_ == peers_.local.size()) {
    return Error{ErrorKind::kInvalidArgument,
                 text(self_) + " has no room for " + text(member.rank) +
                     " on this host: " + std::to_string(introduced_) + " of " +
                     std::to_string(peers_.local.size()) + " ranks are there, and ranks are 0 to " +
                     std::to_string(members_.size() - 1) + "."};
  }
  if (!member.record.contains("shm.fence")) AsymmetricFence::disable();
  members_[index] = member;
  Peer& peer = *peers_.local[introduced_];
  peer.rank = member.rank;
  peer.local_index = introduced_++;
  peer.policy =
      shm::CopyPolicy::of(shm::Caches::of_this_host(), host_rank_count_max(), options_.paths);
  peers_.by_rank[index] = &peer;
  return {};
}

Result<std::unique_ptr<ShmTransport>> ShmTransport::create(Rank self, const Members& members,
                                                           Memory& memory, Doorbell& bell,
                                                           Options options) {
  std::unique_ptr<ShmTransport> transport(
      new ShmTransport(self, members, memory, bell, std::move(options)));
  const auto laid_out = transport->lay_out();
  if (!laid_out) return laid_out.error();
  return transport;
}

Result<void> ShmTransport::lay_out() {
  const Peer* own = peers_.find(self_);
  if (own == nullptr) {
    return Error{ErrorKind::kUnsupported,
                 text(self_) + " published no entry 'shm.memory', so peers cannot reach it."};
  }
  self_index_ = own->local_index;
  const std::size_t ranks_on_host = host_rank_count_max();
  const auto rings = place<Ring>(memory_, ranks_on_host);
  if (!rings) return rings.error();
  const auto entries = place<Entry>(memory_, shm::kEntryCount);
  if (!entries) return entries.error();
  const auto pipes = memory_.allocate(Bytes{shm::all_pipes_bytes(ranks_on_host)});
  if (!pipes) return pipes.error();
  rings_ = *rings;
  outbox_ = std::make_unique<shm::Outbox>(memory_, places_, *entries, *pipes, ranks_on_host);
  inbox_ = std::make_unique<shm::Inbox>(members_.size(), peers_, places_);
  header_of(memory_).entries = offset_in(memory_, *entries);
  shm::publish(header_of(memory_).rings, offset_in(memory_, rings_));
  return {};
}

TransportCounters ShmTransport::counters() const {
  return {.sent_bytes = outbox_->sent_bytes(),
          .sent_messages = outbox_->sent_messages(),
          .received_bytes = inbox_->received_bytes(),
          .received_messages = inbox_->received_messages()};
}

ProcessName ShmTransport::name_of(const Peer& peer) const {
  const Member& member = members_[static_cast<std::size_t>(peer.rank.value())];
  return ProcessName{peer.rank.value(), member.host, member.pid};
}

Result<Peer*> ShmTransport::connectable(Rank rank) const {
  if (Peer* peer = peers_.find(rank)) return peer;
  const auto index = static_cast<std::size_t>(rank.value());
  if (rank.value() < 0 || index >= members_.size()) {
    return Error{ErrorKind::kInvalidArgument, text(rank) + " does not exist; allowed is 0 to " +
                                                  std::to_string(members_.size() - 1) + "."};
  }
  return Error{ErrorKind::kUnsupported, text(self_) + " shares no memory with " + text(rank) +
                                            " on host " + members_[index].host + "."};
}

Result<bool> ShmTransport::register_memory(std::span<std::byte> memory) {
  if (!places_.add(memory)) return false;
  capabilities_.peer_memory = options_.paths.in_place;
  return capabilities_.peer_memory;
}

Result<void> ShmTransport::add_peer(const Member& member, Deadline deadline) {
  std::scoped_lock lock(connect_mutex_);
  if (peers_.find(member.rank) == nullptr) {
    if (!reaches(members_[static_cast<std::size_t>(self_.value())], member)) {
      return Error{ErrorKind::kUnsupported, text(self_) + " shares no memory with " +
                                                text(member.rank) + " on host " + member.host +
                                                "."};
    }
    if (auto introduced = introduce(member); !introduced) return introduced;
  }
  Peer& peer = *peers_.find(member.rank);
  if (auto begun = begin(peer); !begun) return begun;
  return finish(peer, deadline);
}

/// Begins with all peers before it waits for any.
Result<void> ShmTransport::connect(std::span<const Rank> ranks, Deadline deadline) {
  std::scoped_lock lock(connect_mutex_);
  std::vector<Peer*> peers;
  for (const Rank rank : ranks) {
    const auto peer = connectable(rank);
    if (!peer) return peer.error();
    peers.push_back(*peer);
  }
  for (Peer* peer : peers) {
    if (auto begun = begin(*peer); !begun) return begun;
  }
  for (Peer* peer : peers) {
    if (auto finished = finish(*peer, deadline); !finished) return finished;
  }
  return {};
}

/// This rank's part. Maps the peer's memory before it gives the peer what that needs of this rank:
/// a moment later the peer may be gone, and its memory with it.
Result<void> ShmTransport::begin(Peer& peer) {
  if (peer.connected) return {};
  if (auto mapped = map(peer); !mapped) return mapped;
  return offer_ring(peer);
}

/// Waits for the peer's part.
Result<void> ShmTransport::finish(Peer& peer, Deadline deadline) {
  while (!peer.connected) {
    const bool last_look = peer.failed || peer.left;
    if (join_ring(peer)) break;
    if (last_look) {
      return Error{ErrorKind::kRankFailed,
                   text(peer.rank) + (peer.failed ? " failed" : " left") + " while " + text(self_) +
                       " connected to it.",
                   name_of(peer)};
    }
    if (deadline.passed()) {
      return Error{ErrorKind::kTimedOut, text(peer.rank) + " did not connect to " + text(self_) +
                                             " over shared memory in time."};
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return {};
}

/// Makes the lines of the ring to the peer, in this rank's memory, and publishes them.
Result<void> ShmTransport::offer_ring(Peer& peer) {
  if (peer.out != nullptr) return {};
  peer.lines = shm::line_count(host_rank_count_max());
  const auto lines = memory_.allocate(Bytes{shm::with_overhang(peer.lines) * sizeof(Line)});
  if (!lines) return lines.error();
  peer.out_lines = reinterpret_cast<Line*>(*lines);
  peer.out_token = header_of(memory_).token;
  peer.out = &rings_[peer.local_index];
  peer.out->reaches.store(peer.process.reached(), std::memory_order_relaxed);
  shm::publish(peer.out->lines, offset_in(memory_, peer.out_lines));
  return {};
}

/// Maps the peer's memory and checks that it is the right one and that the peer's doorbell can be
/// rung.
Result<void> ShmTransport::map(Peer& peer) {
  if (peer.armed != nullptr) return {};
  const Member& member = members_[static_cast<std::size_t>(peer.rank.value())];
  auto mapping = options_.map(member, mapped_max_);
  if (!mapping) return mapping.error();
  const auto entry = [&](const char* name) {
    const auto found = member.record.find(name);
    return found == member.record.end() ? std::string() : found->second;
  };
  const std::string layout = entry("shm.layout");
  if (layout != std::to_string(shm::kLayoutVersion)) {
    return Error{ErrorKind::kUnsupported,
                 text(peer.rank) + " lays its shared memory out in version '" + layout + "', " +
                     text(self_) + " reads version " + std::to_string(shm::kLayoutVersion) +
                     "; all ranks of a host need one version of the library."};
  }
  Header* header = mapping->at<Header>(0);
  if (header == nullptr || std::to_string(header->token) != entry("shm.token")) {
    return Error{ErrorKind::kUnsupported, "What " + text(self_) + " mapped is not the memory of " +
                                              text(peer.rank) + ": the token differs."};
  }
  if (!Doorbell::reachable(entry("shm.doorbell"), bell_.fd())) {
    return Error{ErrorKind::kUnsupported, text(self_) + " cannot ring the doorbell of " +
                                              text(peer.rank) +
                                              "; it may be in another network name space."};
  }
  peer.bell_address = entry("shm.doorbell");
  peer.bell_fd = bell_.fd();
  peer.armed = &header->armed;
  if (options_.all_memory && host_rank_count_max() == shm::kReachingRanks) {
    peer.process = shm::PeerProcess::open(entry("shm.process"), header->token);
  }
  peer.mapping = std::move(*mapping);
  return {};
}

/// True once the peer's part is there too; the peer is then connected.
bool ShmTransport::join_ring(Peer& peer) {
  const Header& header = *peer.mapping.at<Header>(0);
  const std::uint64_t offset = shm::observe(header.rings);
  if (offset == 0) return false;
  Ring* rings = peer.mapping.at<Ring>(offset, host_rank_count_max());
  peer.in_entries = peer.mapping.at<Entry>(header.entries, shm::kEntryCount);
  if (rings == nullptr || peer.in_entries == nullptr) return false;
  const std::uint64_t lines = shm::observe(rings[self_index_].lines);
  if (lines == 0) return false;
  peer.in = &rings[self_index_];
  peer.in_lines = peer.mapping.at<Line>(lines, shm::with_overhang(peer.lines));
  if (peer.in_lines == nullptr) return false;
  peer.in_token = header.token;
  // Both ranks of a host or neither, so that they choose alike.
  const bool mutual = peer.process.reached() && rings[self_index_].reaches.load();
  if (!mutual) peer.process = {};
  peer.reaches_us = mutual;
  capabilities_.all_memory |= mutual && peer.rank != self_;
  peer.connected.store(true, std::memory_order_release);
  return true;
}

/// The transfer's peer if it is usable; else fails the transfer and returns null.
Peer* ShmTransport::usable(Transfer& transfer) {
  Peer* peer = peers_.find(transfer.peer);
  if (peer != nullptr && peer->usable()) return peer;
  transfer.start();
  transfer.fail(peer != nullptr && peer->failed ? ErrorKind::kRankFailed : ErrorKind::kInternal);
  return nullptr;
}

void ShmTransport::post(Send& send) {
  Peer* peer = usable(send);
  if (peer == nullptr) return;
  send.start();
  if (inbox_->cancelled(send.tag.operation)) {
    send.fail(ErrorKind::kInternal);
  } else {
    outbox_->post(*peer, send);
  }
}

void ShmTransport::post(Receive& receive) {
  if (usable(receive) != nullptr) inbox_->post(receive);
}

bool ShmTransport::progress() {
  bool moved = false;
  for (const auto& peer : peers_.local) {
    if (!peer->usable()) continue;
    moved |= inbox_->drain(*peer);
    moved |= outbox_->flush(*peer);
  }
  moved |= outbox_->advance();
  moved |= inbox_->advance();
  for (const auto& peer : peers_.local) {
    if (peer->corrupt && !peer->failed) peer_failed(peer->rank);
  }
  return moved;
}

bool ShmTransport::cancel(OperationId operation) {
  outbox_->cancel(peers_, operation);
  return inbox_->cancel(operation);
}

void ShmTransport::peer_left(Rank rank) {
  if (Peer* peer = peers_.find(rank)) peer->left = true;
}

void ShmTransport::peer_failed(Rank rank) {
  Peer* peer = peers_.find(rank);
  if (peer == nullptr || peer->failed.exchange(true)) return;
  outbox_->peer_failed(*peer);
  inbox_->peer_failed(*peer);
}

}  // namespace farandole
