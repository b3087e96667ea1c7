// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/exchange.hpp"

#include <chrono>

namespace farandole {
namespace {

using namespace std::chrono_literals;
constexpr auto kDialTime = 5s;
constexpr auto kRetry = 20ms;
constexpr std::size_t kPurposeBytesMax = 1024;

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

std::optional<Error> Exchange::lost(int peer) const {
  const auto& departure = departures_[static_cast<std::size_t>(peer)];
  if (!departure) return std::nullopt;
  const Member& member = roster_.members[static_cast<std::size_t>(peer)];
  return Error{ErrorKind::kRankFailed, describe(member) + " " + departure->reason + ".",
               ProcessName{peer, member.host, member.pid}};
}

Error Exchange::late(const char* what, Rank peer, std::string_view purpose) const {
  const Member& member = roster_.members[static_cast<std::size_t>(peer.value())];
  return Error{ErrorKind::kTimedOut, "rank " + std::to_string(job_.rank.value()) + " got no " +
                                         what + " '" + std::string(purpose) + "' with " +
                                         describe(member) + " in time."};
}

template <class Ready>
bool Exchange::wait(std::unique_lock<std::mutex>& lock, Deadline deadline, Ready ready) {
  if (deadline.when() == Clock::time_point::max()) {
    changed_.wait(lock, ready);
    return true;
  }
  return changed_.wait_until(lock, deadline.when(), ready);
}

Result<int> Exchange::open(Rank peer, std::string_view purpose, Deadline deadline,
                           const std::function<void()>& wake) {
  std::unique_lock lock(mutex_);
  if (auto error = refusal(peer, purpose)) return *error;
  const int rank = peer.value();
  openings_.push_back(Opening{rank, std::string(purpose)});
  Opening& opening = openings_.back();
  wake();
  wait(lock, deadline, [&] { return stopped_ || opening.socket || lost(rank); });
  opening.abandoned = true;
  if (opening.socket) return opening.socket->release();
  wake();
  if (auto error = lost(rank)) return *error;
  if (auto error = refusal(peer, purpose)) return *error;
  return late("connection", peer, purpose);
}

Result<int> Exchange::accept(Rank peer, std::string_view purpose, Deadline deadline) {
  std::unique_lock lock(mutex_);
  if (auto error = refusal(peer, purpose)) return *error;
  const Key key(peer.value(), purpose);
  wait(lock, deadline, [&] { return stopped_ || parked_.contains(key) || lost(key.first); });
  // What a peer opened before it left in order is still good; what a dead one opened is not.
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
          Deadline::after(kDialTime));
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
  if (opening.dial->answered(Verdict::kWelcome)) {
    opening.socket = opening.dial->take();
    changed_.notify_all();
  }
  opening.dial.reset();
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
  departures_[static_cast<std::size_t>(departure.rank.value())] = departure;
  changed_.notify_all();
}

}  // namespace farandole
