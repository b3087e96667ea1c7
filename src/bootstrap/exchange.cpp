// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/exchange.hpp"

#include <algorithm>
#include <chrono>

#include "bootstrap/descriptor_limit.hpp"

namespace farandole {
namespace {

using namespace std::chrono_literals;
constexpr auto kOpenTime = 5s;
constexpr auto kRetry = 20ms;
constexpr std::size_t kPurposeBytesMax = 1024;
// If rank 0 dies while it hands out the table, ranks that did not get it leave without a word.
// Other ranks may notice that before they notice the death of rank 0.
constexpr auto kSettleTime = 500ms;

}  // namespace

Exchange::Exchange(const Job& job, const Roster& roster)
    : job_(job), roster_(roster), departures_(roster.members.size()) {}

std::optional<Error> Exchange::refusal(Rank peer, std::string_view purpose) const {
  const std::string given = std::to_string(peer.value());
  if (peer.value() < 0 || peer.value() >= job_.size || peer == job_.rank) {
    return Error{ErrorKind::kInvalidArgument,
                 "rank " + std::to_string(job_.rank.value()) + " cannot connect to rank " + given +
                     "; allowed is another rank below " + std::to_string(job_.size) + "."};
  }
  if (purpose.size() > kPurposeBytesMax) {
    return Error{ErrorKind::kInvalidArgument,
                 "a connection's purpose has " + std::to_string(purpose.size()) +
                     " bytes; allowed are " + std::to_string(kPurposeBytesMax) + "."};
  }
  if (stopped_) {
    return Error{ErrorKind::kInvalidArgument, "rank " + std::to_string(job_.rank.value()) +
                                                  " has left the job and cannot connect to rank " +
                                                  given + "."};
  }
  return std::nullopt;
}

Error Exchange::gone(int rank, std::string_view when) const {
  const Member& member = roster_.members[static_cast<std::size_t>(rank)];
  const Departure& departure = *departures_[static_cast<std::size_t>(rank)];
  std::string what = describe(member) + " " + departure.reason;
  if (departure.reason.find(when) == std::string::npos) what += when;
  if (!what.ends_with('.')) what += '.';
  return Error{ErrorKind::kRankFailed, std::move(what), ProcessName{rank, member.host, member.pid}};
}

std::optional<Error> Exchange::lost(int peer) const {
  if (auto failure = failed_start()) return failure;
  if (!departures_[static_cast<std::size_t>(peer)]) return std::nullopt;
  return started_ ? std::optional(gone(peer, "")) : std::nullopt;
}

std::optional<Error> Exchange::failed_start() const {
  if (!first_gone_ || Clock::now() < culprit_known_) return std::nullopt;
  const auto& rank_0 = departures_[0];
  return gone(rank_0 && !rank_0->clean ? 0 : *first_gone_, " while the job started");
}

Error Exchange::late(const char* what, Rank peer, std::string_view purpose) const {
  const Member& member = roster_.members[static_cast<std::size_t>(peer.value())];
  return Error{ErrorKind::kTimedOut, "rank " + std::to_string(job_.rank.value()) + " got no " +
                                         what + " '" + std::string(purpose) + "' with " +
                                         describe(member) + " in time."};
}

template <class Ready>
bool Exchange::wait(std::unique_lock<std::mutex>& lock, Deadline deadline, Ready ready) {
  while (!ready()) {
    if (deadline.passed()) return false;
    const bool settling = first_gone_ && Clock::now() < culprit_known_;
    const auto until = settling ? std::min(deadline.when(), culprit_known_) : deadline.when();
    if (until == Clock::time_point::max()) {
      changed_.wait(lock);
    } else {
      changed_.wait_until(lock, until);
    }
  }
  return true;
}

Result<void> Exchange::await_start(Deadline deadline) {
  std::unique_lock lock(mutex_);
  wait(lock, deadline, [&] { return stopped_ || started_ || failed_start(); });
  if (auto error = failed_start()) return *error;
  if (started_) return {};
  return Error{ErrorKind::kTimedOut, "rank " + std::to_string(job_.rank.value()) +
                                         " waited in vain for all ranks to be ready to begin."};
}

std::optional<Error> Exchange::start_failure(Deadline deadline) {
  std::unique_lock lock(mutex_);
  wait(lock, deadline, [&] { return stopped_ || started_ || failed_start(); });
  return failed_start();
}

Result<int> Exchange::open(Rank peer, std::string_view purpose, Deadline deadline,
                           const std::function<void()>& wake) {
  std::unique_lock lock(mutex_);
  if (auto error = refusal(peer, purpose)) return *error;
  const int rank = peer.value();
  openings_.push_back(Opening{rank, std::string(purpose)});
  Opening& opening = openings_.back();
  wake();
  // A peer that leaves in order may have accepted this call before it left.
  const auto hopeless = [&] {
    const auto& departure = departures_[static_cast<std::size_t>(rank)];
    const bool answering = opening.dial && departure && departure->clean;
    return !answering && lost(rank).has_value();
  };
  wait(lock, deadline,
       [&] { return stopped_ || opening.socket || opening.no_socket || hopeless(); });
  opening.abandoned = true;
  if (opening.socket) return opening.socket->release();
  const bool no_socket = opening.no_socket;
  wake();
  if (no_socket) {
    return descriptor_error("a connection with " +
                            describe(roster_.members[static_cast<std::size_t>(rank)]));
  }
  if (auto error = lost(rank)) return *error;
  if (auto error = refusal(peer, purpose)) return *error;
  return late("connection", peer, purpose);
}

Result<int> Exchange::accept(Rank peer, std::string_view purpose, Deadline deadline) {
  std::unique_lock lock(mutex_);
  if (auto error = refusal(peer, purpose)) return *error;
  const Key key(peer.value(), purpose);
  wait(lock, deadline, [&] { return stopped_ || parked_.contains(key) || lost(key.first); });
  // What a peer opened before an orderly departure is still good; what a dead peer opened is not.
  const auto& departure = departures_[static_cast<std::size_t>(key.first)];
  const auto found = parked_.find(key);
  if (found != parked_.end() && (!departure || departure->clean)) {
    const int fd = found->second.front().release();
    found->second.pop_front();
    if (found->second.empty()) parked_.erase(found);
    return fd;
  }
  if (auto error = lost(key.first)) return *error;
  if (auto error = refusal(peer, purpose)) return *error;
  return late("call for", peer, purpose);
}

void Exchange::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  parked_.clear();
  changed_.notify_all();
}

void Exchange::close() {
  const std::lock_guard lock(mutex_);
  for (Opening& opening : openings_) opening.dial.reset();
  parked_.clear();
}

void Exchange::watch(PollSet& set) {
  const std::lock_guard lock(mutex_);
  openings_.remove_if([](const Opening& opening) { return opening.abandoned; });
  for (Opening& opening : openings_) {
    if (opening.socket) continue;
    if (!opening.dial && Clock::now() >= opening.due) {
      const Endpoint& endpoint = roster_.listeners[static_cast<std::size_t>(opening.peer)];
      auto address = numeric_address(endpoint);
      opening.dial.emplace(
          address ? *address : Address{}, job_.secret,
          Identity{Purpose::kData, job_.rank.value(), roster_.run, opening.purpose},
          Deadline::after(kOpenTime));
    }
    if (opening.dial) {
      opening.dial->watch(set);
    } else {
      set.wake_by(opening.due);
    }
  }
}

void Exchange::serve(const PollSet& set) {
  const std::lock_guard lock(mutex_);
  for (Opening& opening : openings_) {
    if (!opening.dial || opening.abandoned) continue;
    opening.dial->serve(set);
    settle(opening);
  }
}

void Exchange::settle(Opening& opening) {
  if (opening.dial->outcome() == Dial::Outcome::kWorking) return;
  if (opening.dial->answered(Verdict::kWelcome)) opening.socket = opening.dial->take();
  opening.no_socket = opening.dial->outcome() == Dial::Outcome::kNoSocket;
  opening.dial.reset();
  changed_.notify_all();
  opening.due = Clock::now() + kRetry;  // whether the peer lives is for Links to find out
}

Verdict Exchange::admit(int rank) const {
  const std::lock_guard lock(mutex_);
  if (rank < 0 || rank >= job_.size || stopped_) return Verdict::kNotNow;
  const auto& departure = departures_[static_cast<std::size_t>(rank)];
  return departure ? Verdict::kGone : Verdict::kWelcome;
}

void Exchange::enter(const Identity& identity, Descriptor socket) {
  const std::lock_guard lock(mutex_);
  parked_[Key(identity.rank, identity.topic)].push_back(std::move(socket));
  changed_.notify_all();
}

void Exchange::departed(const Departure& departure) {
  const std::lock_guard lock(mutex_);
  const int rank = departure.rank.value();
  departures_[static_cast<std::size_t>(rank)] = departure;
  if (!started_ && !first_gone_ && departure.rank != job_.rank) {
    first_gone_ = rank;
    culprit_known_ = Clock::now() + (departure.clean || rank == 0 ? 0ms : kSettleTime);
  } else if (rank == 0) {
    culprit_known_ = std::min(culprit_known_, Clock::now());
  }
  changed_.notify_all();
}

void Exchange::started() {
  const std::lock_guard lock(mutex_);
  started_ = true;
  changed_.notify_all();
}

}  // namespace farandole
