// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/ticks.hpp"
#include "bootstrap/member.hpp"
#include "bootstrap/session.hpp"
#include "engine/aborts.hpp"
#include "engine/claims.hpp"
#include "engine/operation.hpp"
#include "engine/submission_queue.hpp"
#include "transport/doorbell.hpp"
#include "transport/transport.hpp"

namespace farandole {

struct EngineOptions {
  Members members;  // by world rank, for error messages
  Rank self{0};
  // A waiting thread spins with pause instructions, then yields its core repeatedly, then sleeps:
  // the peer that it waits for may need the same core.
  std::chrono::microseconds pause{10};
  std::chrono::microseconds spin{100};  // pausing and yielding together
  /// "allreduce sum float32[10]"; the engine itself knows no names of algorithms.
  std::function<std::string(const Signature&)> describe;
  /// Sends a message to every other rank, which passes it to notice().
  std::function<void(std::string_view)> flood;
};

/// Runs operations. One thread at a time is the driver and steps them all: the progress thread, or
/// a caller that waits while nobody drives, which saves small collectives two thread switches.
///
/// Threads   any thread, except create() and stop().
/// Order     Operations of one communicator start in the order submitted.
/// Errors    A departed rank fails every operation, now and later, whose group contains it, except
///           those in which it had done its part before it left on purpose. An operation past its
///           deadline fails with kTimedOut and breaks its communicator. One that two ranks start
///           with different signatures fails with kMismatch on all ranks that start it.
///           allocate, lock or log unless something failed.
class Engine {
 public:
  /// `transports` and `doorbell` outlive the engine.
  static std::unique_ptr<Engine> create(std::vector<Transport*> transports, Doorbell& doorbell,
                                        EngineOptions options);
  /// The same without a progress thread: nothing happens outside turn(), so that a simulation can
  /// run many engines on one thread. stop() does not wait for peers.
  static std::unique_ptr<Engine> create_stepped(std::vector<Transport*> transports,
                                                Doorbell& doorbell, EngineOptions options);
  /// The work of a driver from one sleep to the next: steps until nothing moves, and checks
  /// deadlines. Returns how long it may sleep if nothing arrives.
  Clock::duration turn();
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Hands an operation over. `background`: nobody waits for it at once, so the progress thread
  /// runs it.
  void submit(std::shared_ptr<Operation> operation, bool background);
  /// submit() and wait() in one; returns the operation's outcome. The caller keeps the operation
  /// alive, in a shared_ptr.
  Result<void> run(Operation& operation);
  /// True once it is finished, false if `give_up` passed first. waited_ns() counts from `since`, in
  /// Ticks: when the caller became blocked.
  bool wait(Operation& operation, std::uint64_t since, Deadline give_up = Deadline::never());

  /// Ends everything in flight, and everything submitted later, with this error.
  void abort(Error error);
  /// Ends everything on this communicator, in flight or to come, on all its members: kAborted.
  void abort(const Group& group, std::string_view reason);
  /// What operations of an aborted communicator fail with; the same for all of them.
  Error abort_error(const Group& group);
  /// Ends everything and joins the progress thread. Idempotent, one thread at a time.
  void stop();

  /// From now on claims about this communicator's operations concern this rank. `next` numbers
  /// them.
  void joined(const Group& group, const std::atomic<std::uint32_t>& next);
  /// This rank submits nothing there any more: operations that others start fail on all of them.
  void left(const Group& group);
  /// This rank cannot start an operation that it has numbered: the operation fails on all ranks.
  void excuse(const Group& group, std::uint32_t sequence, const Error& why);
  /// What did not end well here, for the final state.
  FinalState withdrawn();

  /// For a clean departure, `departure.state` is that rank's encoded FinalState.
  void departed(const Departure& departure);
  /// Both ranks are alive, but what `from` sends does not reach `to`: fails every operation of
  /// both.
  void stalled(Rank from, Rank to, std::string_view what);
  void notice(Rank from, std::string_view message);
  /// A connection to the peer broke; if the control plane has no verdict soon, it is gone.
  void suspect(Rank peer);

  /// Nanoseconds with at least one operation in flight, and nanoseconds in wait(), summed over
  /// threads. An operation that is submitted without reading the clock and ends within
  /// kUntimedLooks, about a microsecond, counts as nothing: reading the clock twice takes a fifth
  /// of the time of a small broadcast.
  std::uint64_t active_ns() const { return rate_.nanoseconds(active_ticks_.load()); }
  std::uint64_t waited_ns() const {
    return rate_.nanoseconds(waited_ticks_.load() + driven_ticks_.load());
  }
  std::uint64_t finished_count() const { return finished_count_.load(std::memory_order_relaxed); }
  /// What is in flight, for dumps. Waits for the driver; for use when something is wrong.
  std::string state();

 private:
  struct Gone {
    Rank rank;
    std::string reason;
    bool clean;
    FinalState final_state;  // clean: what it had done its part in
    // Set: nobody has gone, but what `rank` sends does not reach this rank.
    std::optional<Rank> unreached = std::nullopt;
  };
  struct Events {
    std::vector<Gone> gone;
    std::vector<Disagreement> disagreements;
    std::vector<Disagreement> excuses;  // of this rank, for all others
    std::vector<Claim> claims;
    std::vector<Rank> suspects;
    std::unique_ptr<Error> abort;
    bool group_aborted = false;
    std::vector<std::promise<std::string>> askers;  // of state()
  };

  Engine(std::vector<Transport*> transports, Doorbell& doorbell, EngineOptions options);

  void wake();
  void look_for_end(const Operation& operation);
  /// Steps as the driver until the operation is finished or `give_up` has passed, then stops
  /// driving.
  void drive_to_end(const Operation& operation, std::uint64_t since, Deadline give_up);
  /// How a driver stops. kFenced: with a full fence, before it looks at the queue once more.
  /// kUnfenced: without; then a thread that submits in the background issues the fence for both.
  enum class Driver : std::uint8_t { kNone, kUnfenced, kFenced };
  bool try_drive(Driver as);
  void stop_driving();
  /// Steps until `done()`, or, after `give_up`, until nothing moves; the caller is the driver.
  template <class Done>
  void drive_until(Done done, Deadline give_up);
  bool step();
  bool look();  // step() without start_submitted()
  bool start_submitted();
  void start(Operation& operation);
  bool step_operations();
  template <class Add>
  void post_event(Add add);
  void take_events();
  std::string list_operations() const;
  bool is_ahead(OperationId id);
  bool freed_before(const Claim& claim);
  bool is_gone(Rank rank) const;
  void take_words(Events& events);
  void take_abort(Abort abort);
  void retell(const Claim& claim);
  void remember(Disagreement disagreement);
  void note_trouble();
  void take_disagreement(Disagreement disagreement);
  void take_claim(const Claim& claim);
  void recall(Operation& operation);
  void fail(Operation& operation, Error error);
  void fail_affected();
  Operation* in_flight(OperationId id) const;
  void check_time();
  bool looks_are_needed() const;
  void make_claims(Clock::time_point now);
  void report_disagreement(Operation& operation);
  void contradict(Operation& operation, const Claim& claim);
  void refuse_message(Operation& operation);
  void fail_disagreeing(Operation& operation, const Disagreement& disagreement);
  void start_after_trouble(Operation& operation);
  const Gone* gone_for(const Operation& operation) const;
  Error gone_error(const Gone& gone, const Operation& operation) const;
  Error excuse_error(const Operation& operation, const Disagreement& disagreement) const;
  ProcessName culprit(Rank rank) const;
  void sleep();
  Clock::duration quiet_time() const;
  void run();  // the progress thread
  void end_all(Deadline patience);
  std::string process(Rank rank) const;

  const std::vector<Transport*> transports_;
  Doorbell& doorbell_;
  const EngineOptions options_;
  /// What ends a sleep, the doorbell first. Polled without an epoll set: in one, every packet that
  /// arrives at a transport's own descriptor would pay for waking the set, even while nobody
  /// sleeps.
  std::vector<pollfd> wakers_;

  SubmissionQueue<Operation> submitted_;
  std::atomic<Driver> driving_{Driver::kNone};
  std::atomic<std::uint32_t> work_{0};  // the progress thread sleeps on it
  std::atomic<bool> stopping_{false};

  // The driver's own.
  Operation* first_ = nullptr;
  Operation** last_ = &first_;
  std::uint32_t steps_ = 0;
  std::uint64_t active_since_ = 0;  // Ticks; 0: nothing is in flight, or the clock was not read
  std::uint64_t idle_since_ = 0;    // the end of the last active time
  std::vector<Gone> gone_;
  Ahead<Disagreement> disagreements_;
  Ahead<Claim> claims_;
  std::deque<Disagreement> disputed_;          // that failed operations; the latest kDisputedMax
  Clock::time_point claims_due_{};             // when make_claims() is next due
  std::map<int, Clock::time_point> suspects_;  // world rank -> since
  std::unique_ptr<Error> aborted_;
  bool group_aborted_ = false;  // some communicator was
  bool troubled_ = false;       // whether there is any of these; see note_trouble()

  // From other threads; the flag lets the step loop go without the lock.
  std::atomic<bool> has_events_{false};
  std::mutex events_mutex_;
  Events waiting_events_;
  Progress communicators_;                        // likewise under events_mutex_
  FinalState withdrawn_;                          // likewise
  Aborts aborts_;                                 // likewise, and so is groups_
  std::map<std::uint32_t, const Group*> groups_;  // by the number of the communicator

  std::atomic<std::uint64_t> active_ticks_{0};
  std::atomic<std::uint64_t> driven_ticks_{0}, waited_ticks_{0};  // in wait(), driving or not
  const TickRate rate_;
  std::atomic<std::uint64_t> finished_count_{0};
  std::thread thread_;
};

}  // namespace farandole
