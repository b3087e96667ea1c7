// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/asymmetric_fence.hpp"
#include "base/owned_sum.hpp"

namespace farandole {
namespace {

constexpr std::uint32_t kStepsPerTimeCheck = 1024;
// Reading the clock takes as long as polling for messages.
constexpr int kPausesPerClock = 16;
constexpr int kSleepMs = 100;  // deadlines are checked this often in a quiet wait
constexpr Clock::duration kSleep = std::chrono::milliseconds(kSleepMs);
// How long a sleep lasts while an operation waits for a device, which wakes nobody.
constexpr Clock::duration kLookAgain = std::chrono::microseconds(50);
constexpr auto kSuspicion = std::chrono::milliseconds(800);
constexpr int kUntimedLooks = 32;  // about a microsecond, over shared memory
constexpr auto kEndPatience = std::chrono::seconds(2);

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

std::unique_ptr<Engine> Engine::create(std::vector<Transport*> transports, Doorbell& doorbell,
                                       EngineOptions options) {
  auto engine = create_stepped(std::move(transports), doorbell, std::move(options));
  engine->thread_ = std::thread([raw = engine.get()] { raw->run(); });
  return engine;
}

std::unique_ptr<Engine> Engine::create_stepped(std::vector<Transport*> transports,
                                               Doorbell& doorbell, EngineOptions options) {
  return std::unique_ptr<Engine>(new Engine(std::move(transports), doorbell, std::move(options)));
}

Engine::Engine(std::vector<Transport*> transports, Doorbell& doorbell, EngineOptions options)
    : transports_(std::move(transports)), doorbell_(doorbell), options_(std::move(options)) {
  wakers_.push_back({.fd = doorbell.fd(), .events = POLLIN, .revents = 0});
  for (const Transport* transport : transports_) {
    if (transport->wait_fd() < 0) continue;
    wakers_.push_back({.fd = transport->wait_fd(), .events = POLLIN, .revents = 0});
  }
}

Engine::~Engine() {
  stop();
}

void Engine::stop() {
  if (stopping_.exchange(true)) return;
  doorbell_.ring();
  wake();
  if (thread_.joinable()) {
    thread_.join();
  } else {
    end_all(Deadline::after({}));
  }
}

// Submitting and waiting -------------------------------------------------------------------------

void Engine::submit(std::shared_ptr<Operation> operation, bool background) {
  Operation* node = operation.get();
  node->handed_over = true;
  node->in_flight = std::move(operation);
  submitted_.push(node);
  // A driver that is about to stop looks at the queue once more after it has given up the role, so
  // one of the two sides always sees the other.
  Driver driver = driving_.load(std::memory_order_seq_cst);
  if (driver == Driver::kUnfenced && background) {
    AsymmetricFence::heavy();
    driver = driving_.load(std::memory_order_seq_cst);
  }
  if (driver != Driver::kNone) {
    doorbell_.ring();
  } else if (background) {
    wake();
  }
}

Result<void> Engine::run(Operation& operation) {
  const std::uint64_t submitted = operation.terms().submitted;
  const auto since = [&] { return submitted != 0 ? submitted : Ticks::now(); };
  if (try_drive(Driver::kUnfenced)) {
    start_submitted();  // what came before
    start(operation);   // ends in this call, so nobody else needs to hold it
    step_operations();  // a small message is sent and done here
    if (submitted == 0) look_for_end(operation);
    if (operation.finished() && submitted == 0) {
      stop_driving();
    } else {
      drive_to_end(operation, since(), Deadline::never());
    }
  } else {
    submit(operation.shared_from_this(), false);
    wait(operation, since());
  }
  return operation.outcome();
}

bool Engine::wait(Operation& operation, std::uint64_t since, Deadline give_up) {
  std::optional<Clock::time_point> spin_end;
  while (!operation.finished() && !give_up.passed()) {
    if (try_drive(Driver::kFenced)) {
      drive_to_end(operation, since, give_up);
      return operation.finished();
    }
    const Clock::time_point now = Clock::now();
    if (!spin_end) spin_end = now + options_.spin;
    if (now < *spin_end) {
      std::this_thread::yield();
    } else {
      operation.sleep_until_finished(std::chrono::milliseconds(kSleepMs));
    }
  }
  waited_ticks_.fetch_add(Ticks::now() - since, std::memory_order_relaxed);
  return operation.finished();
}

/// A peer that makes the same call at the same time answers before the clock could be read twice.
void Engine::look_for_end(const Operation& operation) {
  if (options_.pause == std::chrono::microseconds(0)) return;
  for (int looks = 0; looks < kUntimedLooks && !operation.finished(); ++looks) {
    if (!look()) pause();
  }
}

void Engine::drive_to_end(const Operation& operation, std::uint64_t since, Deadline give_up) {
  drive_until([&] { return operation.finished(); }, give_up);
  const bool ended_here = first_ == nullptr && idle_since_ > since;
  add_owned(driven_ticks_, (ended_here ? idle_since_ : Ticks::now()) - since);
  stop_driving();
}

void Engine::wake() {
  work_.fetch_add(1, std::memory_order_seq_cst);
  work_.notify_one();
}

bool Engine::try_drive(Driver as) {
  Driver none = Driver::kNone;
  return driving_.load(std::memory_order_relaxed) == none &&
         driving_.compare_exchange_strong(none, as, std::memory_order_seq_cst);
}

void Engine::stop_driving() {
  const bool more = first_ != nullptr;
  if (driving_.load(std::memory_order_relaxed) == Driver::kUnfenced) {
    AsymmetricFence::store(driving_, Driver::kNone);
  } else {
    driving_.store(Driver::kNone, std::memory_order_seq_cst);
  }
  if (more || !submitted_.empty() || has_events_.load(std::memory_order_seq_cst)) wake();
}

template <class Done>
void Engine::drive_until(Done done, Deadline give_up) {
  std::optional<Clock::time_point> idle_since;
  int pauses = 0;
  while (!done()) {
    if (step()) {
      idle_since.reset();
      continue;
    }
    if (options_.pause > std::chrono::microseconds(0) && ++pauses % kPausesPerClock != 0) {
      pause();
      continue;
    }
    const Clock::time_point now = Clock::now();
    if (!idle_since) idle_since = now;
    const auto idle = now - *idle_since;
    if (idle >= options_.spin) {
      sleep();
      idle_since.reset();
    } else if (idle >= options_.pause) {
      std::this_thread::yield();
    }
    if (give_up.passed()) return;
  }
}

void Engine::run() {
  while (!stopping_.load()) {
    const std::uint32_t seen = work_.load(std::memory_order_seq_cst);
    if (try_drive(Driver::kFenced)) {
      drive_until(
          [&] {
            return stopping_.load() || (first_ == nullptr && submitted_.empty() &&
                                        !has_events_.load(std::memory_order_acquire));
          },
          Deadline::never());
      driving_.store(Driver::kNone, std::memory_order_seq_cst);
      if (!submitted_.empty()) continue;
    }
    if (!stopping_.load()) work_.wait(seen, std::memory_order_seq_cst);
  }
  end_all(Deadline::after(kEndPatience));
}

void Engine::end_all(Deadline patience) {
  while (!try_drive(Driver::kFenced)) std::this_thread::yield();
  abort(Error{ErrorKind::kInternal, "the library was shut down while operations were in flight"});
  do {
    step();
  } while ((first_ != nullptr || !submitted_.empty()) && !patience.passed());
  while (first_ != nullptr) {  // some peer has stopped reading; the sockets are about to be closed
    Operation& operation = *first_;
    operation.abandon();
    first_ = operation.next;
    operation.in_flight.reset();
  }
  last_ = &first_;
  driving_.store(Driver::kNone, std::memory_order_seq_cst);
}

// Stepping ---------------------------------------------------------------------------------------

bool Engine::step() {
  bool moved = start_submitted();
  if (first_ != nullptr && active_since_ == 0) active_since_ = Ticks::now();
  moved |= look();
  return moved;
}

bool Engine::look() {
  bool moved = false;
  for (Transport* transport : transports_) moved |= transport->progress();
  moved |= step_operations();
  if (has_events_.load(std::memory_order_acquire)) {
    take_events();
    moved = true;
  }
  if (++steps_ % kStepsPerTimeCheck == 0) check_time();
  return moved;
}

bool Engine::start_submitted() {
  Operation* operation = submitted_.take_all();
  const bool any = operation != nullptr;
  while (operation != nullptr) {
    Operation* following = operation->next;
    start(*operation);
    operation = following;
  }
  return any;
}

void Engine::start(Operation& operation) {
  if (first_ == nullptr) active_since_ = operation.terms().submitted;
  operation.next = nullptr;
  *last_ = &operation;
  last_ = &operation.next;
  if (troubled_ || operation.group().broken) start_after_trouble(operation);
}

bool Engine::step_operations() {
  bool moved = false;
  Operation** link = &first_;
  while (*link != nullptr) {
    Operation& operation = **link;
    moved |= operation.step();
    if (operation.disagreement() != nullptr && !operation.failing()) report_disagreement(operation);
    if (operation.trouble() && !operation.failing()) {
      excuse(operation.group(), operation.id()->sequence, *operation.trouble());
      operation.fail(*operation.trouble());
    }
    if (!operation.finished()) {
      link = &operation.next;
      continue;
    }
    *link = operation.next;
    if (last_ == &operation.next) last_ = link;
    add_owned(finished_count_, 1);
    operation.in_flight.reset();
    moved = true;
  }
  if (moved && first_ == nullptr && active_since_ != 0) {
    idle_since_ = Ticks::now();
    add_owned(active_ticks_, idle_since_ - active_since_);
    active_since_ = 0;
  }
  return moved;
}

void Engine::sleep() {
  check_time();
  doorbell_.arm();
  // Operations are stepped once more, for what has ended since step() did so.
  if (!step() && !step_operations()) {
    const auto ns = std::chrono::nanoseconds(quiet_time()).count();
    const timespec timeout{.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
    const int count = ::ppoll(wakers_.data(), wakers_.size(), &timeout, nullptr);
    if (count > 0 && wakers_.front().revents != 0) doorbell_.drain();
  }
  doorbell_.disarm();
}

bool Engine::looks_are_needed() const {
  for (const Operation* operation = first_; operation != nullptr; operation = operation->next) {
    if (operation->needs_looks()) return true;
  }
  return false;
}

Clock::duration Engine::quiet_time() const {
  const Clock::duration most = looks_are_needed() ? kLookAgain : kSleep;
  return std::clamp<Clock::duration>(claims_due_ - Clock::now(), {}, most);
}

Clock::duration Engine::turn() {
  if (!try_drive(Driver::kFenced)) return {};
  do {
    check_time();
  } while (step() || step_operations());
  const Clock::duration quiet = quiet_time();
  stop_driving();
  return quiet;
}

void Engine::check_time() {
  const Clock::time_point now = Clock::now();
  for (Operation* operation = first_; operation != nullptr; operation = operation->next) {
    if (operation->failing()) continue;
    operation->look(now);
    if (!operation->overdue(now)) continue;
    Error error{ErrorKind::kTimedOut,
                operation->description() + " passed its deadline; " + operation->state()};
    if (!operation->group().broken) operation->group().broken = error;
    fail(*operation, std::move(error));
  }
  make_claims(now);
  if (!gone_.empty()) fail_affected();
  for (auto suspect = suspects_.begin(); suspect != suspects_.end();) {
    if (now - suspect->second < kSuspicion) {
      ++suspect;
      continue;
    }
    departed({Rank{suspect->first}, false, "closed its connection", {}});
    suspect = suspects_.erase(suspect);
  }
}

}  // namespace farandole
