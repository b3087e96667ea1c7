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
  // A wait pauses, then gives its core away again and again, then sleeps. The peer it waits for
  // may need that very core.
  std::chrono::microseconds pause{10};
  std::chrono::microseconds spin{100};  // both of the former
  /// "allreduce sum float32[10]"; the engine itself knows no names of algorithms.
  std::function<std::string(const Signature&)> describe;
  /// Tells every other rank; they hand it to notice().
  std::function<void(std::string_view)> flood;
};

/// Runs operations. One thread at a time is the driver and steps them all: the progress thread,
/// or a caller that waits and finds nobody driving, which saves small collectives two switches
/// between threads.
///
/// Threads   any, but for create() and stop().
/// Order     Operations of one communicator start in the order submitted.
/// Errors    A departed rank fails every operation, now and later, whose group contains it, but
///           for those that it had done its part in before it left on purpose. An operation past
///           its deadline fails with kTimedOut and breaks its communicator. One that two ranks
///           start with different signatures fails with kMismatch on all ranks that start it.
/// Blocking  run() and wait() block; they release no lock of the caller's. The step loop does not
///           allocate, lock or log unless something failed.
class Engine {
 public:
  /// `transports` and `doorbell` outlive the engine.
  static std::unique_ptr<Engine> create(std::vector<Transport*> transports, Doorbell& doorbell,
                                        EngineOptions options);
  /// The same without a progress thread: nothing happens but in turn(), so that a simulation can
  /// run many engines on one thread. stop() does not wait for peers.
  static std::unique_ptr<Engine> create_stepped(std::vector<Transport*> transports,
                                                Doorbell& doorbell, EngineOptions options);
  /// What a driver does from one sleep to the next: steps until nothing moves, and looks at the
  /// time. Returns how long it may sleep if nothing comes.
  Clock::duration turn();
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Hands an operation over. `background`: nobody will wait at once, the progress thread runs it.
  void submit(std::shared_ptr<Operation> operation, bool background);
  /// submit() and wait() in one; the operation's outcome. The caller keeps it alive, and made it
  /// shared.
  Result<void> run(Operation& operation);
  /// True once it is finished, false if `give_up` passed first. The caller is blocked since
  /// `since`, in Ticks, which waited_ns() counts.
  bool wait(Operation& operation, std::uint64_t since, Deadline give_up = Deadline::never());

  /// Ends everything in flight, and everything submitted later, with this error.
  void abort(Error error);
  /// Ends everything on this communicator, in flight or to come, on all its members: kAborted.
  void abort(const Group& group, std::string_view reason);
  /// What operations of an aborted communicator fail with; the same for all of them.
  Error abort_error(const Group& group);
  /// Ends everything and joins the progress thread. Idempotent, one thread at a time.
  void stop();

  /// Claims about operations of this communicator concern this rank. `next` numbers them.
  void joined(const Group& group, const std::atomic<std::uint32_t>& next);
  /// Nothing is submitted there any more: operations that others start fail on all of them.
  void left(const Group& group);
  /// This rank cannot start the operation, which counts nonetheless: it fails on all ranks.
  void excuse(const Group& group, std::uint32_t sequence, const Error& why);
  /// What did not end well here.
  FinalState withdrawn();

  /// `departure.state` of a clean one is that rank's FinalState, encoded.
  void departed(const Departure& departure);
  /// Both live, but what the one sends does not reach the other: fails every operation of both.
  void stalled(Rank from, Rank to, std::string_view what);
  void notice(Rank from, std::string_view message);
  /// A connection to the peer broke; if the control plane has no verdict soon, it is gone.
  void suspect(Rank peer);

  /// Nanoseconds with at least one operation in flight, and in wait(), summed over threads. What
  /// was submitted without looking at the clock, and ends within kUntimedLooks, about a
  /// microsecond, counts nothing: two looks at it take a fifth of the time of a small broadcast.
  std::uint64_t active_ns() const { return rate_.nanoseconds(active_ticks_.load()); }
  std::uint64_t waited_ns() const {
    return rate_.nanoseconds(waited_ticks_.load() + driven_ticks_.load());
  }
  std::uint64_t finished_count() const { return finished_count_.load(std::memory_order_relaxed); }
  /// What is in flight, for dumps. Waits for whoever drives; for use when something is wrong.
  std::string state();

 private:
  struct Gone {
    Rank rank;
    std::string reason;
    bool clean;
    FinalState final_state;  // clean: what it had started
    // Nobody has gone, but what `rank` sends does not reach this one.
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
  /// The driver steps until the operation is finished, or until `give_up`, and drives no longer.
  void drive_to_end(const Operation& operation, std::uint64_t since, Deadline give_up);
  /// Whether whoever drives looks at the queue once more behind a fence when it stops; else whoever
  /// submits meanwhile fences for both.
  enum class Driver : std::uint8_t { kNone, kUnfenced, kFenced };
  bool try_drive(Driver as);
  void stop_driving();
  /// Steps until `done()`, or in a quiet moment after `give_up`; the caller is the driver.
  template <class Done>
  void drive_until(Done done, Deadline give_up);
  bool step();
  bool look();  // a step, for what has been started
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
  /// What ends a sleep, the doorbell first. No epoll: were they in one, every packet that comes to
  /// a transport's own would pay for a sleeper, also while nobody sleeps.
  std::vector<pollfd> wakers_;

  SubmissionQueue<Operation> submitted_;
  std::atomic<Driver> driving_{Driver::kNone};
  std::atomic<std::uint32_t> work_{0};  // the progress thread sleeps on it
  std::atomic<bool> stopping_{false};

  // The driver's.
  Operation* first_ = nullptr;
  Operation** last_ = &first_;
  std::uint32_t steps_ = 0;
  std::uint64_t active_since_ = 0;  // Ticks; 0 while nothing is in flight, or since nobody looked
  std::uint64_t idle_since_ = 0;    // the end of the last active time
  std::vector<Gone> gone_;
  Ahead<Disagreement> disagreements_;
  Ahead<Claim> claims_;
  std::deque<Disagreement> disputed_;          // what failed for it: the latest kDisputedMax
  Clock::time_point claims_due_{};             // when to look at the operations again for that
  std::map<int, Clock::time_point> suspects_;  // world rank -> since
  std::unique_ptr<Error> aborted_;
  bool group_aborted_ = false;  // some communicator was
  bool troubled_ = false;       // one of these was ever told

  // From other threads; the flag spares the step loop the lock.
  std::atomic<bool> has_events_{false};
  std::mutex events_mutex_;
  Events waiting_events_;
  Progress communicators_;                        // likewise under events_mutex_
  FinalState withdrawn_;                          // likewise
  Aborts aborts_;                                 // likewise, as the next
  std::map<std::uint32_t, const Group*> groups_;  // by the number of the communicator

  std::atomic<std::uint64_t> active_ticks_{0};
  std::atomic<std::uint64_t> driven_ticks_{0}, waited_ticks_{0};  // in wait(), driving or not
  const TickRate rate_;
  std::atomic<std::uint64_t> finished_count_{0};
  std::thread thread_;
};

}  // namespace farandole
