// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.hpp"
#include "engine/final_state.hpp"
#include "engine/group.hpp"
#include "farandole/device.hpp"
#include "farandole/result.hpp"
#include "transport/transport.hpp"

namespace farandole {

/// What every kind of operation has.
struct OperationTerms {
  std::shared_ptr<const Group> group;
  std::string name;  // the caller's, may be empty
  Gate gate;
  Clock::duration timeout{};    // counts from when the input is ready
  std::uint64_t submitted = 0;  // Ticks; 0: the clock was not read, since it may end at once
};

/// Something in flight: a collective or a batch of messages.
///
/// Threads   finished(), sleep_until_finished(), outcome() and on_complete() from any thread; the
///           rest from the engine's driver.
/// Memory    Allocates in its constructor and in renew() only, on the submitting thread.
class Operation : public std::enable_shared_from_this<Operation> {
 public:
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  virtual ~Operation();

  /// Advances as far as possible without waiting; true if anything happened.
  bool step();
  /// Ends the operation with an error. It is finished once no transport touches its memory.
  void fail(Error error);
  bool failing() const { return failing_; }
  /// Why a collective cannot end well here, which other ranks cannot see; fail() must follow.
  const std::optional<Error>& trouble() const { return trouble_; }
  /// Ends a failing operation although a transport may still read its memory; for shutdown only.
  void abandon() { finish(); }
  /// The receive whose message was not the one that this operation expects; null if there is none.
  const Transfer* disagreement() const { return disagreement_; }
  /// Reports what the disagreement was. A collective fails, since its later steps would make no
  /// sense.
  virtual void disagreed(Error error) { fail(std::move(error)); }

  bool finished() const { return phase_.load(std::memory_order_acquire) == kFinished; }
  /// Sleeps until another thread has finished it, at most `timeout`; may return early.
  void sleep_until_finished(std::chrono::nanoseconds timeout);
  /// Valid once finished().
  const Result<void>& outcome() const { return outcome_; }

  using Told = std::function<void(const Result<void>&)>;
  /// Calls `told` once with the outcome: at once if the operation is finished, else on the thread
  /// that finishes it. Any thread; only for an operation that was handed over.
  void on_complete(Told told);

  const OperationTerms& terms() const { return terms_; }
  /// Whether only polling shows that it can go on: the driver sleeps only briefly meanwhile.
  bool needs_looks() const { return !started_ ? !terms_.gate.is_open() : awaits_device(); }
  /// Updates the watch on deadline and progress, which starts with the first call.
  void look(Clock::time_point now);
  bool overdue(Clock::time_point now) const { return watch_ && now >= watch_->deadline; }
  /// Since when it has not moved, as far as look() has seen; none once this rank or another one has
  /// claimed it, see Claim.
  std::optional<Clock::time_point> still_since() const {
    return !watch_ || claimed_ ? std::nullopt : std::optional(watch_->moved_at);
  }
  /// All ranks hear, or have heard, the claim that this rank would make.
  void set_claimed() { claimed_ = true; }
  const Group& group() const { return *terms_.group; }
  /// The id of a collective, which is the same on all ranks of the group; none otherwise.
  virtual const OperationId* id() const { return nullptr; }
  /// Sets the id of a collective, before it is submitted.
  virtual void set_id(OperationId) {}
  /// For a collective: must be the same on all ranks that start the operation of this id.
  virtual Signature signature() const { return {}; }
  /// The peer of a transfer that failed because its transport lost that peer.
  virtual std::optional<Rank> lost_peer() const = 0;
  /// The operation has not ended well, so this rank's final state must not say that it has.
  virtual void withdraw(FinalState& words) const = 0;
  /// Whether the rank that left with this final state did its part in the operation.
  virtual bool done_by(Rank world_rank, const FinalState& final_state) const = 0;
  /// "allreduce 'grad' (communicator 0, operation 17)"
  virtual std::string description() const = 0;
  /// For dumps: position and the transfers that are open.
  virtual std::string state() const = 0;

  Operation* next = nullptr;             // the engine's list
  std::shared_ptr<Operation> in_flight;  // set while the engine holds the operation
  /// Whether it was handed over to the driver since it was made or renewed, so that threads other
  /// than the caller may have held it or sleep on it. Written by the submitting thread.
  bool handed_over = false;

 protected:
  explicit Operation(OperationTerms terms) : terms_(std::move(terms)) {}
  /// begin() starts it once the gate is open, advance() continues; both return what step() does.
  virtual bool begin() = 0;
  virtual bool advance() = 0;
  /// Withdraws the operation's transfers; true once no transport touches its memory.
  virtual bool cancel() = 0;
  /// A number that changes whenever the operation moves.
  virtual std::uint64_t progress() const = 0;
  /// Whether it waits for work of a device, which does not notify anybody when it ends.
  virtual bool awaits_device() const { return false; }
  void finish();
  /// "allreduce 'grad' (communicator 0, operation 17)"
  std::string describe(Collective collective, OperationId id) const;
  /// "; send to rank 3 16/64 bytes"
  static std::string describe(const Transfer& transfer, bool sends);
  /// Makes it ready to run again. Only for an operation that ended well and that nobody else holds.
  void renew(std::string_view name, std::uint64_t submitted, const Gate& gate) {
    if (!terms_.name.empty() || !name.empty()) rename(name);
    terms_.gate = gate;
    terms_.submitted = submitted;
    watch_.reset();
    claimed_ = false;
    started_ = false;
    handed_over = false;
    phase_.store(kRunning, std::memory_order_relaxed);
  }
  static constexpr std::uint32_t kRunning = 0, kSleptOn = 1, kFinished = 2;

  const Transfer* disagreement_ = nullptr;
  std::optional<Error> trouble_;
  bool failing_ = false;
  bool claimed_ = false;  // also before its input is there
  Result<void> outcome_;

 private:
  void rename(std::string_view name);
  void tell();

  struct Listener {
    Told told;
    Listener* next = nullptr;
  };
  struct Watch {
    Clock::time_point deadline, moved_at;
    std::uint64_t progress = 0;
  };

  OperationTerms terms_;
  std::optional<Watch> watch_;
  bool started_ = false;
  std::atomic<std::uint32_t> phase_{kRunning};
  std::atomic<Listener*> listeners_{nullptr};  // latest first; called by the thread taking them
};

}  // namespace farandole
