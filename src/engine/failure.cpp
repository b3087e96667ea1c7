// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
// What the engine does when ranks leave or fail, and when a communicator is aborted.
#include <algorithm>
#include <chrono>
#include <utility>

#include "base/asymmetric_fence.hpp"
#include "engine/engine.hpp"

namespace farandole {
namespace {

constexpr std::size_t kAbortReasonBytesMax = 2000;
constexpr auto kAnswerPause = std::chrono::milliseconds(5);

}  // namespace

template <class Add>
void Engine::post_event(Add add) {
  {
    const std::lock_guard lock(events_mutex_);
    add(waiting_events_);
    has_events_.store(true, std::memory_order_seq_cst);
  }
  AsymmetricFence::heavy();  // a stopping driver checks for events as it does for submissions
  doorbell_.ring();
  wake();
}

void Engine::abort(Error error) {
  post_event([&](Events& events) { events.abort = std::make_unique<Error>(std::move(error)); });
}

void Engine::departed(const Departure& departure) {
  // An unreadable state promises nothing, so everything that waits for that rank fails.
  Gone gone{departure.rank, departure.reason, departure.clean,
            decode_final_state(departure.state).value_or(FinalState())};
  post_event([&](Events& events) { events.gone.push_back(std::move(gone)); });
}

void Engine::stalled(Rank from, Rank to, std::string_view what) {
  Gone gone{from, std::string(what), false, {}, to};
  post_event([&](Events& events) { events.gone.push_back(std::move(gone)); });
}

void Engine::suspect(Rank peer) {
  post_event([&](Events& events) { events.suspects.push_back(peer); });
}

void Engine::abort(const Group& group, std::string_view reason) {
  Abort abort{group.communicator, group.first(), options_.self,
              std::string(reason.substr(0, kAbortReasonBytesMax))};
  const std::string message = encode(abort);
  take_abort(std::move(abort));
  options_.flood(message);
}

void Engine::take_abort(Abort abort) {
  post_event([&](Events& events) {
    const auto group = groups_.find(abort.communicator);
    const bool here = group != groups_.end() && group->second->first() == abort.first;
    if (!aborts_.add(std::move(abort)) || !here) return;
    group->second->set_aborted();
    events.group_aborted = true;
  });
}

Error Engine::abort_error(const Group& group) {
  const std::lock_guard lock(events_mutex_);
  const Abort* const abort = aborts_.find(group);
  if (abort == nullptr) return Error{ErrorKind::kAborted, "the communicator was aborted."};
  Error error{ErrorKind::kAborted, process(abort->by) + " aborted communicator " +
                                       std::to_string(group.communicator) + ": " + abort->reason};
  error.culprit = ProcessName{abort->by.value(), {}, 0};
  const auto index = static_cast<std::size_t>(abort->by.value());
  if (index < options_.members.size()) {
    error.culprit->host = options_.members[index].host;
    error.culprit->pid = options_.members[index].pid;
  }
  return error;
}

/// Messages about communicators of other ranks wake nobody. For a communicator that this rank is
/// about to join nothing is lost: if such a message matters, an operation will stand still, and the
/// claims are made again.
void Engine::notice(Rank, std::string_view message) {
  if (auto abort = decode_abort(message)) return take_abort(*std::move(abort));
  auto disagreement = decode_disagreement(message);
  auto claims = decode_claims(message);
  {
    const std::lock_guard lock(events_mutex_);
    const auto knows = [&](const auto& said) { return communicators_.knows(said.id, said.first); };
    if (disagreement && !knows(*disagreement)) disagreement.reset();
    if (claims) {
      std::erase_if(*claims, [&](const Claim& claim) {
        return !knows(claim) && !communicators_.freed_before(claim.id, claim.first);
      });
    }
  }
  if (disagreement) {
    post_event([&](Events& events) { events.disagreements.push_back(*std::move(disagreement)); });
  }
  if (claims && !claims->empty()) {
    post_event([&](Events& events) {
      events.claims.insert(events.claims.end(), claims->begin(), claims->end());
    });
  }
}

void Engine::joined(const Group& group, const std::atomic<std::uint32_t>& next) {
  const std::lock_guard lock(events_mutex_);
  communicators_.add(group.communicator, group.first(), next);
  groups_[group.communicator] = &group;
  if (aborts_.find(group) == nullptr) return;
  group.set_aborted();
  waiting_events_.group_aborted = true;
  has_events_.store(true, std::memory_order_seq_cst);
}

/// Posts an event, so that claims that wait for this rank are answered: they are not made again.
void Engine::left(const Group& group) {
  post_event([&](Events&) {
    communicators_.remove(group.communicator);
    groups_.erase(group.communicator);
  });
}

void Engine::excuse(const Group& group, std::uint32_t sequence, const Error& why) {
  Disagreement disagreement{.id = {group.communicator, sequence},
                            .first = group.first(),
                            .reporter = options_.self,
                            .excuse = why.message};
  if (why.kind == ErrorKind::kRankFailed && why.culprit) {
    disagreement.lost = Rank{why.culprit->rank};
  }
  post_event([&](Events& events) { events.excuses.push_back(std::move(disagreement)); });
}

FinalState Engine::withdrawn() {
  const std::lock_guard lock(events_mutex_);
  return withdrawn_;
}

void Engine::take_events() {
  Events events;
  {
    const std::lock_guard lock(events_mutex_);
    has_events_.store(false, std::memory_order_relaxed);
    std::swap(events, waiting_events_);
  }
  for (Gone& gone : events.gone) {
    if (!gone.unreached) suspects_.erase(gone.rank.value());
    for (Transport* transport : transports_) {
      if (gone.unreached) break;
      if (gone.clean) {
        transport->peer_left(gone.rank);
      } else {
        transport->peer_failed(gone.rank);
      }
    }
    gone_.push_back(std::move(gone));
  }
  for (const Rank peer : events.suspects) {
    if (!is_gone(peer)) suspects_.emplace(peer.value(), Clock::now());
  }
  take_words(events);
  if (events.abort) aborted_ = std::move(events.abort);
  group_aborted_ |= events.group_aborted;
  note_trouble();
  fail_affected();
  for (std::promise<std::string>& asker : events.askers) asker.set_value(list_operations());
}

void Engine::note_trouble() {
  troubled_ = !gone_.empty() || !disagreements_.empty() || !claims_.empty() || group_aborted_ ||
              aborted_ != nullptr;
}

Operation* Engine::in_flight(OperationId id) const {
  Operation* operation = first_;
  while (operation != nullptr && (operation->id() == nullptr || *operation->id() != id)) {
    operation = operation->next;
  }
  return operation;
}

void Engine::start_after_trouble(Operation& operation) {
  if (aborted_) return fail(operation, *aborted_);
  if (operation.group().aborted()) return fail(operation, abort_error(operation.group()));
  if (operation.group().broken) return fail(operation, *operation.group().broken);
  if (const Gone* gone = gone_for(operation)) return fail(operation, gone_error(*gone, operation));
  recall(operation);
}

/// Ends the operation with an error that other ranks may not share.
void Engine::fail(Operation& operation, Error error) {
  {
    const std::lock_guard lock(events_mutex_);
    operation.withdraw(withdrawn_);
  }
  operation.fail(std::move(error));
}

bool Engine::is_gone(Rank rank) const {
  return std::ranges::any_of(
      gone_, [&](const Gone& gone) { return gone.rank == rank && !gone.unreached; });
}

void Engine::fail_affected() {
  for (Operation* operation = first_; operation != nullptr; operation = operation->next) {
    if (operation->failing()) continue;
    if (operation->group().aborted()) {
      fail(*operation, abort_error(operation->group()));
    } else if (const Gone* gone = gone_for(*operation)) {
      fail(*operation, gone_error(*gone, *operation));
    } else if (aborted_) {
      fail(*operation, *aborted_);
    }
  }
}

const Engine::Gone* Engine::gone_for(const Operation& operation) const {
  const std::optional<Rank> lost = operation.lost_peer();
  for (const Gone& gone : gone_) {
    if (!operation.group().contains(gone.rank)) continue;
    if (gone.unreached && !operation.group().contains(*gone.unreached)) continue;
    // A transport's report of loss outweighs the final state: what was lost on the way never
    // arrives.
    if (!gone.clean || gone.rank == lost || !operation.done_by(gone.rank, gone.final_state)) {
      return &gone;
    }
  }
  return nullptr;
}

std::string Engine::process(Rank rank) const {
  const auto index = static_cast<std::size_t>(rank.value());
  std::string text = "rank " + std::to_string(rank.value());
  if (index >= options_.members.size()) return text;
  const Member& member = options_.members[index];
  return text + " (" + member.host + ", pid " + std::to_string(member.pid) + ")";
}

ProcessName Engine::culprit(Rank rank) const {
  const auto index = static_cast<std::size_t>(rank.value());
  if (index >= options_.members.size()) return {rank.value(), {}, 0};
  return {rank.value(), options_.members[index].host, options_.members[index].pid};
}

Error Engine::gone_error(const Gone& gone, const Operation& operation) const {
  if (gone.unreached) {
    Error error{ErrorKind::kRankFailed,
                gone.reason + " from " + process(gone.rank) + " to " + process(*gone.unreached) +
                    " made no progress, though both are alive, during " + operation.description()};
    error.operation = operation.description();
    return error;
  }
  Error error{ErrorKind::kRankFailed,
              process(gone.rank) + " " + gone.reason + " during " + operation.description()};
  error.culprit = culprit(gone.rank);
  error.operation = operation.description();
  return error;
}

std::string Engine::state() {
  std::promise<std::string> asked;
  auto answer = asked.get_future();
  post_event([&](Events& events) { events.askers.push_back(std::move(asked)); });
  // Any driver answers, also a caller that waits for its own operation and never stops driving.
  while (answer.wait_for(kAnswerPause) != std::future_status::ready) {
    if (!try_drive(Driver::kFenced)) continue;
    take_events();
    stop_driving();
  }
  return answer.get();
}

std::string Engine::list_operations() const {
  std::string text = "rank " + std::to_string(options_.self.value()) + ":\n";
  for (const Operation* operation = first_; operation != nullptr; operation = operation->next) {
    text += "  " + operation->state() + "\n";
  }
  return text;
}

}  // namespace farandole
