// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/listener.hpp"

#include <cerrno>
#include <chrono>
#include <utility>

#include "base/log.hpp"
#include "bootstrap/descriptor_limit.hpp"
#include "bootstrap/secret.hpp"

namespace farandole {
namespace {

using namespace std::chrono_literals;
constexpr auto kRestTime = 50ms;
constexpr int kAcceptsPerTurn = 16;  // so that a flood of visitors leaves time for the members

}  // namespace

void Listener::watch(PollSet& set) {
  slot_ = PollSet::kNoSlot;
  if (Clock::now() >= rest_until_) {
    slot_ = set.add(socket_.fd(), POLLIN);
  } else {
    set.wake_by(rest_until_);
  }
  for (Visitor& visitor : visitors_) {
    visitor.channel.watch(set);
    set.wake_by(visitor.deadline.when());
  }
}

void Listener::serve(const PollSet& set, const Admission& admission) {
  for (Visitor& visitor : visitors_) {
    if (visitor.channel.ready(set) != 0) converse(visitor, admission);
    if (!visitor.done && visitor.deadline.passed()) drop(visitor);
  }
  if (set.ready(slot_) != 0) accept_all();
  visitors_.remove_if([](const Visitor& visitor) { return visitor.done; });
}

void Listener::accept_all() {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    Descriptor socket = accept_connection(socket_.fd());
    if (!socket) {
      const bool empty = errno == EAGAIN || errno == EWOULDBLOCK;
      if (!empty) rest_until_ = Clock::now() + kRestTime;
      if (out_of_descriptors(errno) && !std::exchange(exhausted_, true)) {
        log(LogLevel::kError, descriptor_error("letting a rank connect").message);
      }
      return;
    }
    exhausted_ = false;
    auto nonce = random_bytes(kNonceBytes);
    if (!nonce) return;
    if (visitors_.size() >= visitors_max_) {
      drop(visitors_.front());
      visitors_.pop_front();
    }
    visitors_.push_back(Visitor{Channel(std::move(socket)),
                                ServerHandshake(secret_, *std::move(nonce)),
                                Deadline::after(handshake_time_)});
  }
}

void Listener::converse(Visitor& visitor, const Admission& admission) {
  ServerHandshake& handshake = visitor.handshake;
  visitor.channel.flush();
  while (handshake.state() == Handshake::State::kWorking) {
    const std::string bytes = visitor.channel.read(handshake.wanted());
    if (bytes.empty()) break;
    const bool greeting = !handshake.challenged();
    handshake.feed(bytes);
    if (greeting && visitor.channel.hung_up()) {
      visitor.done = true;  // it timed out while it waited for us, which is not its fault
      return;
    }
    visitor.channel.send(handshake.take_output());
  }
  if (handshake.state() == Handshake::State::kProven) {
    const Verdict verdict = admission.admit(handshake.identity());
    handshake.answer(verdict);
    visitor.channel.send(handshake.take_output());
    visitor.done = true;
    if (verdict == Verdict::kWelcome) admission.enter(handshake.identity(), visitor.channel.take());
  } else if (handshake.state() == Handshake::State::kFailed) {
    drop(visitor);
  } else if (visitor.channel.ended()) {
    // A visitor that hangs up after our proof does not share our secret.
    if (handshake.challenged()) drop(visitor);
    visitor.done = true;
  }
}

void Listener::drop(Visitor& visitor) {
  visitor.done = true;
  rejected_.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace farandole
