// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/operation.hpp"

#include <utility>

#include "base/futex.hpp"

namespace farandole {

bool Operation::step() {
  if (failing_) {
    const bool clear = cancel();
    if (clear) finish();
    return clear;
  }
  if (started_) return advance();
  if (!terms_.gate.is_open()) return false;
  started_ = true;
  return begin();
}

void Operation::fail(Error error) {
  if (failing_ || finished()) return;
  failing_ = true;
  outcome_ = std::move(error);
}

void Operation::finish() {
  terms_.gate.leave();
  if (!handed_over) {
    phase_.store(kFinished, std::memory_order_relaxed);  // only the caller has it, and it drives
    return;
  }
  if (phase_.exchange(kFinished, std::memory_order_acq_rel) != kSleptOn) return;
  futex_wake_all(phase_);
  tell();
}

Operation::~Operation() {
  for (Listener* one = listeners_.load(); one != nullptr;) {
    delete std::exchange(one, one->next);
  }
}

/// Listeners set the same phase as sleepers, so that finishing without either costs nothing.
void Operation::on_complete(Told told) {
  auto* const mine = new Listener{std::move(told), listeners_.load()};
  while (!listeners_.compare_exchange_weak(mine->next, mine)) {
  }
  std::uint32_t phase = kRunning;
  if (phase_.compare_exchange_strong(phase, kSleptOn) || phase == kSleptOn) return;
  tell();
}

void Operation::tell() {
  Listener* in_order = nullptr;
  for (Listener* one = listeners_.exchange(nullptr); one != nullptr;) {
    Listener* const following = one->next;
    one->next = std::exchange(in_order, one);
    one = following;
  }
  while (in_order != nullptr) {
    in_order->told(outcome_);
    delete std::exchange(in_order, in_order->next);
  }
}

void Operation::rename(std::string_view name) {
  terms_.name = name;
}

void Operation::look(Clock::time_point now) {
  if (!started_) return;
  const std::uint64_t at = progress();
  if (!watch_) watch_ = Watch{now + terms_.timeout, now, at};
  if (watch_->progress == at) return;
  watch_->progress = at;
  watch_->moved_at = now;
}

void Operation::sleep_until_finished(std::chrono::nanoseconds timeout) {
  std::uint32_t phase = kRunning;
  if (phase_.compare_exchange_strong(phase, kSleptOn) || phase == kSleptOn) {
    futex_wait(phase_, kSleptOn, timeout);
  }
}

std::string Operation::describe(Collective collective, OperationId id) const {
  std::string text(farandole::name(collective));
  if (!terms_.name.empty()) text += " '" + terms_.name + "'";
  return text + " (communicator " + std::to_string(id.communicator) + ", operation " +
         std::to_string(id.sequence) + ")";
}

std::string Operation::describe(const Transfer& transfer, bool sends) {
  return (sends ? "; send to rank " : "; receive from rank ") +
         std::to_string(transfer.peer.value()) + " " + std::to_string(transfer.moved.value()) +
         "/" + std::to_string(transfer.bytes.value()) + " bytes";
}

}  // namespace farandole
