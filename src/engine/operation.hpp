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

/// What every operation has.
struct OperationTerms {
  std::shared_ptr<const Group> group;
  std::string name;  // the caller's, may be empty
  Gate gate;
  Clock::duration timeout{};    // counts from when the input is there
  std::uint64_t submitted = 0;  // Ticks; 0: not looked at, since it may well end at once
};

/// Something in flight: a collective or a batch of messages.
///
/// Threads   finished(), sleep_until_finished(), outcome() and on_complete() from any; the rest
/// from the engine's
///           driver.
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
  /// Why a collective cannot end well here, which other ranks cannot see; fail() has to follow.
  const std::optional<Error>& trouble() const { return trouble_; }
  /// Ends a failing operation although a transport may still read its memory; for shutdown only.
  void abandon() { finish(); }
  /// The receive whose message was not the one that this operation expects, or none.
  const Transfer* disagreement() const { return disagreement_; }
  /// Told what the disagreement was. A collective fails, since nothing after it makes sense.
  virtual void disagreed(Error error) { fail(std::move(error)); }

  bool finished() const { return phase_.load(std::memory_order_acquire) == kFinished; }
  /// Sleeps until another thread finished it, at most `timeout`; may return early.
  void sleep_until_finished(std::chrono::nanoseconds timeout);
  /// Valid once finished().
  const Result<void>& outcome() const { return outcome_; }

  using Told = std::function<void(const Result<void>&)>;
  /// Calls `told` once with the outcome, at once if it is finished, else on the thread that
  /// finishes it. Any thread; only of an operation that was handed over.
  void on_complete(Told told);

  const OperationTerms& terms() const { return terms_; }
  /// Whether only looking again shows that it can go on: the driver does not sleep meanwhile.
  bool needs_looks() const { return !started_ ? !terms_.gate.is_open() : awaits_device(); }
  /// Looks at it for deadlines; counts from the first look.
  void look(Clock::time_point now);
  bool overdue(Clock::time_point now) const { return watch_ && now >= watch_->deadline; }
  /// Since when it has not moved, as far as looks have shown; none once somebody has said what it
  /// is, see Claim.
  std::optional<Clock::time_point> still_since() const {
    return !watch_ || watch_->claimed ? std::nullopt : std::optional(watch_->moved_at);
  }
  /// All ranks hear, or have heard, what this rank would say.
  void set_claimed() {
    if (!started_) return;  // it makes no claim before its input is there
    if (!watch_) look(Clock::now());
    watch_->claimed = true;
  }
  const Group& group() const { return *terms_.group; }
  /// Of a collective, which all ranks of the group number alike; none otherwise.
  virtual const OperationId* id() const { return nullptr; }
  /// Of a collective, before it is submitted.
  virtual void set_id(OperationId) {}
  /// What all ranks that have this id must have; of a collective.
  virtual Signature signature() const { return {}; }
  /// The peer of a transfer that failed because its transport lost that peer.
  virtual std::optional<Rank> lost_peer() const = 0;
  /// It has not ended well, so that this rank's last words must not say that it has.
  virtual void withdraw(FinalState& words) const = 0;
  /// Whether a rank that left with these words did its part in this operation.
  virtual bool done_by(Rank world_rank, const FinalState& final_state) const = 0;
  /// "allreduce 'grad' (communicator 0, operation 17)"
  virtual std::string description() const = 0;
  /// For dumps: position and the transfers that are open.
  virtual std::string state() const = 0;

  Operation* next = nullptr;             // the engine's list
  std::shared_ptr<Operation> in_flight;  // set while the engine holds the operation
  /// Handed to whichever thread drives, since it was made or renewed: others than the caller may
  /// have held it or sleep on it. The submitting thread's.
  bool handed_over = false;

 protected:
  explicit Operation(OperationTerms terms) : terms_(std::move(terms)) {}
  /// Starts after the stream's earlier work; both as step().
  virtual bool begin() = 0;
  virtual bool advance() = 0;
  /// Takes the operation's transfers back; true once no transport touches its memory.
  virtual bool cancel() = 0;
  /// Any number that changes while it moves.
  virtual std::uint64_t progress() const = 0;
  /// Whether it waits for work of a device, of whose end nobody tells.
  virtual bool awaits_device() const { return false; }
  void finish();
  /// "allreduce 'grad' (communicator 0, operation 17)"
  std::string describe(Collective collective, OperationId id) const;
  /// "; send to rank 3 16/64 bytes"
  static std::string describe(const Transfer& transfer, bool sends);
  /// Ready to run once more; of an operation that ended well and that nobody else holds.
  void renew(std::string_view name, std::uint64_t submitted, const Gate& gate) {
    if (!terms_.name.empty() || !name.empty()) rename(name);
    terms_.gate = gate;
    terms_.submitted = submitted;
    watch_.reset();
    started_ = false;
    handed_over = false;
    phase_.store(kRunning, std::memory_order_relaxed);
  }
  static constexpr std::uint32_t kRunning = 0, kSleptOn = 1, kFinished = 2;

  const Transfer* disagreement_ = nullptr;
  std::optional<Error> trouble_;
  bool failing_ = false;
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
    bool claimed = false;
  };

  OperationTerms terms_;
  std::optional<Watch> watch_;
  bool started_ = false;
  std::atomic<std::uint32_t> phase_{kRunning};
  std::atomic<Listener*> listeners_{nullptr};  // the latest first; whoever takes them calls them
};

}  // namespace farandole
