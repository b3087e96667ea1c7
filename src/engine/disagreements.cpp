// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "engine/engine.hpp"

// How ranks tell each other of operations that they called differently, or that stand still.
// docs/design/0014-mismatches.md
namespace farandole {
namespace {

constexpr std::size_t kDisputedMax = 64;

}  // namespace

bool Engine::is_ahead(OperationId id) {
  const std::lock_guard lock(events_mutex_);
  return communicators_.ahead(id);
}

bool Engine::freed_before(const Claim& claim) {
  const std::lock_guard lock(events_mutex_);
  return communicators_.freed_before(claim.id, claim.first);
}

void Engine::take_words(Events& events) {
  std::vector<Claim> passed;
  {
    const std::lock_guard lock(events_mutex_);
    disagreements_.keep([&](OperationId id) { return communicators_.knows(id); });
    passed = claims_.keep([&](OperationId id) { return communicators_.ahead(id); });
  }
  for (Disagreement& disagreement : events.excuses) {
    options_.flood(encode(disagreement));
    remember(std::move(disagreement));
  }
  for (Disagreement& disagreement : events.disagreements)
    take_disagreement(std::move(disagreement));
  for (const Claim& claim : passed) take_claim(claim);
  for (const Claim& claim : events.claims) take_claim(claim);
}

void Engine::take_disagreement(Disagreement disagreement) {
  if (Operation* operation = in_flight(disagreement.id)) {
    fail_disagreeing(*operation, disagreement);
  } else {
    disagreements_.add(std::move(disagreement));  // even if it is about to start
  }
}

void Engine::take_claim(const Claim& claim) {
  if (Operation* operation = in_flight(claim.id)) {
    contradict(*operation, claim);
  } else if (is_ahead(claim.id)) {
    claims_.add(claim);
  } else if (freed_before(claim)) {
    options_.flood(encode(Disagreement{.id = claim.id,
                                       .first = claim.first,
                                       .reporter = options_.self,
                                       .excuse = "it has freed the communicator"}));
  } else {
    retell(claim);
  }
}

/// For an operation that has ended here. If it ended well, all ranks had one signature. If not, all
/// ranks were told, but the claiming one may have been told before it knew the communicator: then
/// the reporter repeats it, or, if that rank is gone, every rank that remembers.
void Engine::retell(const Claim& claim) {
  const auto known = std::ranges::find(disputed_, claim.id, &Disagreement::id);
  if (known == disputed_.end()) return;
  if (known->reporter == options_.self || is_gone(known->reporter)) options_.flood(encode(*known));
}

void Engine::remember(Disagreement disagreement) {
  if (disputed_.size() == kDisputedMax) disputed_.pop_front();
  disputed_.push_back(std::move(disagreement));
}

/// Reports that this rank's signature differs from that of the claim. If they agree, there is
/// nothing to add.
void Engine::contradict(Operation& operation, const Claim& claim) {
  if (operation.failing()) return;
  if (claim.signature == operation.signature()) {
    operation.group().patience = std::min(2 * operation.group().patience, kPatienceMax);
    return operation.set_claimed();
  }
  Disagreement disagreement{
      .id = claim.id, .first = claim.first, .reporter = options_.self, .other = claim.from};
  disagreement.reported = operation.signature();
  disagreement.seen = claim.signature;
  options_.flood(encode(disagreement));
  fail_disagreeing(operation, disagreement);
}

/// Claims the operations that have stood still for so long that others may wait for the same.
void Engine::make_claims(Clock::time_point now) {
  claims_due_ = Clock::time_point::max();
  std::vector<Claim> claims;
  for (Operation* operation = first_; operation != nullptr; operation = operation->next) {
    if (operation->id() == nullptr || operation->failing()) continue;
    const auto still_since = operation->still_since();
    if (!still_since) continue;
    const OperationId id = *operation->id();
    const Group& group = operation->group();
    const auto due = *still_since + claims_after(id, group.self, group.size(), group.patience);
    if (due <= now && claims.size() < Ahead<Claim>::kMax) {
      claims.push_back({id, group.first(), options_.self, operation->signature()});
      operation->set_claimed();
    } else {
      claims_due_ = std::min(claims_due_, due);
    }
  }
  if (claims.empty()) return;
  for (const Claim& claim : claims) {
    const Group& group = in_flight(claim.id)->group();
    group.patience = std::min(2 * group.patience, kPatienceMax);
  }
  options_.flood(encode(claims));
}

/// Applies what was heard about an operation before it started.
void Engine::recall(Operation& operation) {
  if (operation.id() == nullptr) return;
  for (const Disagreement& disagreement : disagreements_.take(*operation.id())) {
    fail_disagreeing(operation, disagreement);
  }
  for (const Claim& claim : claims_.take(*operation.id())) contradict(operation, claim);
  note_trouble();
}

void Engine::report_disagreement(Operation& operation) {
  if (operation.id() == nullptr) return refuse_message(operation);
  const Transfer& transfer = *operation.disagreement();
  const Disagreement disagreement{.id = *operation.id(),
                                  .first = operation.group().first(),
                                  .reporter = options_.self,
                                  .other = transfer.peer,
                                  .reported = transfer.signature,
                                  .seen = transfer.seen,
                                  .reported_bytes = transfer.bytes.value(),
                                  .seen_bytes = transfer.seen_bytes.value()};
  options_.flood(encode(disagreement));
  fail_disagreeing(operation, disagreement);
}

/// The sender is done with the message and cannot know; only this rank can tell.
void Engine::refuse_message(Operation& operation) {
  const Transfer& transfer = *operation.disagreement();
  operation.disagreed(Error{ErrorKind::kMismatch, "ranks disagree on " + operation.description() +
                                                      ": " + process(transfer.peer) + " sent " +
                                                      options_.describe(transfer.seen) + ", " +
                                                      process(options_.self) + " expected " +
                                                      options_.describe(transfer.signature)});
}

Error Engine::excuse_error(const Operation& operation, const Disagreement& disagreement) const {
  const std::string what =
      process(disagreement.reporter) + " could not take part in " + operation.description();
  if (!disagreement.lost) {
    return Error{ErrorKind::kMismatch, what + ": " + disagreement.excuse};
  }
  return Error{ErrorKind::kRankFailed, disagreement.excuse + " Therefore " + what + ".",
               culprit(*disagreement.lost), operation.description()};
}

void Engine::fail_disagreeing(Operation& operation, const Disagreement& disagreement) {
  if (operation.failing()) return;
  operation.group().patience = kPatienceMin;
  remember(disagreement);
  if (!disagreement.excuse.empty())
    return operation.disagreed(excuse_error(operation, disagreement));
  const std::string reported = options_.describe(disagreement.reported);
  const std::string seen = options_.describe(disagreement.seen);
  std::string message = "ranks disagree on " + operation.description() + ": " +
                        process(disagreement.reporter) + " asked for " + reported + ", " +
                        process(disagreement.other) + " for " + seen;
  if (disagreement.reported == disagreement.seen) {
    message += " (messages of " + std::to_string(disagreement.reported_bytes) + " and " +
               std::to_string(disagreement.seen_bytes) + " bytes)";
  } else if (reported == seen) {
    message += " (the same algorithm with other options or counts, or for another purpose)";
  }
  operation.disagreed(Error{ErrorKind::kMismatch, std::move(message)});
}

}  // namespace farandole
