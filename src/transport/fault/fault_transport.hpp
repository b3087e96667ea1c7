// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "transport/queue.hpp"
#include "transport/transport.hpp"

namespace farandole {

/// Another transport with injected faults: late, reordered, lost messages and a rank that stops.
///
/// Every decision is drawn from the seed when a transfer is posted, so equal seeds and equal
/// posts give equal faults; capabilities().name has the seed.
///   delay     A posted transfer is held for 0 to post_delay_max calls of progress().
///   stall     After one post in `stall_every` the other transport makes no progress for up
///             to stall_max calls, which delays completions.
///   reorder   A held transfer may be overtaken by one of another tag or peer, never by one that
///             must match after it.
///   wake-ups  While something is held, and for one post in `wake_every`, progress() reports that
///             something moved although nothing may have.
///   drop      One send in `drop_every` is reported as done and never leaves; nor does any later
///             one with its peer and tag, so that no receive gets another message's bytes.
///   kill      After `kill_after_sends` sends `on_kill` is called once; without it the rank
///             falls silent: nothing moves any more, and progress() finds nothing to do.
/// Threads, memory, match, errors, blocking: as Transport says.
class FaultTransport final : public Transport {
 public:
  struct Options {
    std::uint64_t seed = 1;
    std::uint32_t post_delay_max = 0;  // progress() calls
    bool reorder = false;
    std::uint32_t stall_every = 0;  // posts; 0: never, here and below
    std::uint32_t stall_max = 8;    // progress() calls
    std::uint32_t wake_every = 0;
    std::uint32_t drop_every = 0;
    std::optional<std::uint64_t> kill_after_sends;
    std::function<void()> on_kill;
  };

  FaultTransport(std::unique_ptr<Transport> inner, Options options);

  const Capabilities& capabilities() const override { return capabilities_; }
  TransportCounters counters() const override { return inner_->counters(); }
  Result<void> add_peer(const Member& peer, Deadline deadline) override;
  Result<void> connect(std::span<const Rank> peers, Deadline deadline) override;
  Result<bool> register_memory(std::span<std::byte> memory) override;
  void release_memory(std::span<std::byte> memory) override { inner_->release_memory(memory); }
  void post(Send& send) override;
  void post(Receive& receive) override;
  bool progress() override;
  bool cancel(OperationId operation) override;
  void peer_failed(Rank peer) override;
  void peer_left(Rank peer) override { inner_->peer_left(peer); }
  int wait_fd() const override { return inner_->wait_fd(); }

 private:
  template <class T>
  using Held = IntrusiveQueue<T, Transfer>;
  struct Stream {
    Rank peer;
    Tag tag;
    bool operator==(const Stream&) const = default;
  };

  void renew_capabilities();
  bool ended(const Transfer& transfer) const;
  std::uint32_t draw(std::uint32_t most);  // 0 to most
  bool chance(std::uint32_t every);
  void delay(Transfer& transfer);
  bool dropped(const Send& send);
  bool silent();
  template <class T>
  bool release(Held<T>& held);
  template <class Predicate>
  void end_held(Predicate unwanted, ErrorKind kind);

  const std::unique_ptr<Transport> inner_;
  const Options options_;
  const std::string name_;
  Capabilities capabilities_;
  std::mt19937_64 random_;
  Held<Send> sends_;
  Held<Receive> receives_;
  std::vector<Stream> passed_over_;  // held back in this release(); later posts must wait
  std::vector<OperationId> cancelled_;
  std::vector<Rank> failed_;
  std::vector<Stream> broken_;  // those of which a message was dropped
  std::uint64_t send_count_ = 0;
  std::uint32_t stall_ = 0;
  bool wake_ = false;
  bool killed_ = false;
};

}  // namespace farandole
