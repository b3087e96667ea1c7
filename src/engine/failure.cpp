// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
// The engine's other half: what happens when ranks go away or disagree.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/asymmetric_fence.hpp"
#include "engine/engine.hpp"

namespace farandole {
namespace {

constexpr std::size_t kDisagreementsMax = 256;
constexpr std::string_view kDisagreementWord = "mismatch";
constexpr auto kAnswerPause = std::chrono::milliseconds(5);

}  // namespace

template <class Add>
void Engine::post_news(Add add) {
  {
    const std::lock_guard lock(news_mutex_);
    add(waiting_news_);
    news_.store(true, std::memory_order_seq_cst);
  }
  AsymmetricFence::heavy();  // a driver that is about to stop looks for news as for submissions
  doorbell_.ring();
  wake();
}

void Engine::abort(Error error) {
  post_news([&](News& news) { news.abort = std::make_unique<Error>(std::move(error)); });
}

void Engine::departed(const Departure& departure) {
  Gone gone{departure.rank, departure.reason, departure.clean, Farewell::parse(departure.state)};
  post_news([&](News& news) { news.gone.push_back(std::move(gone)); });
}

void Engine::suspect(Rank peer) {
  post_news([&](News& news) { news.suspects.push_back(peer); });
}

void Engine::notice(Rank, std::string_view message) {
  Disagreement disagreement;
  if (message.size() != kDisagreementWord.size() + sizeof(disagreement) ||
      !message.starts_with(kDisagreementWord)) {
    return;
  }
  std::memcpy(&disagreement, message.data() + kDisagreementWord.size(), sizeof(disagreement));
  post_news([&](News& news) { news.disagreements.push_back(disagreement); });
}

void Engine::take_news() {
  News news;
  {
    const std::lock_guard lock(news_mutex_);
    news_.store(false, std::memory_order_relaxed);
    std::swap(news, waiting_news_);
  }
  for (Gone& gone : news.gone) {
    suspects_.erase(gone.rank.value());
    for (Transport* transport : transports_) {
      if (gone.clean) {
        transport->peer_left(gone.rank);
      } else {
        transport->peer_failed(gone.rank);
      }
    }
    gone_.push_back(std::move(gone));
  }
  for (const Rank peer : news.suspects) {
    const bool known = std::any_of(gone_.begin(), gone_.end(),
                                   [&](const Gone& gone) { return gone.rank == peer; });
    if (!known) suspects_.emplace(peer.value(), Clock::now());
  }
  for (const Disagreement& disagreement : news.disagreements) take_disagreement(disagreement);
  if (news.abort) aborted_ = std::move(news.abort);
  troubled_ = !gone_.empty() || !disagreements_.empty() || aborted_ != nullptr;
  fail_affected();
  for (std::promise<std::string>& asker : news.askers) asker.set_value(list_operations());
}

void Engine::take_disagreement(const Disagreement& disagreement) {
  for (Operation* operation = first_; operation != nullptr; operation = operation->next) {
    const OperationId* id = operation->id();
    if (id != nullptr && *id == disagreement.id) return fail_disagreeing(*operation, disagreement);
  }
  // Not started yet, or over already: recall_disagreement() sorts that out.
  if (disagreements_.size() == kDisagreementsMax) disagreements_.erase(disagreements_.begin());
  disagreements_.push_back(disagreement);
}

void Engine::start_after_trouble(Operation& operation) {
  if (aborted_) return operation.fail(*aborted_);
  if (operation.group().broken) return operation.fail(*operation.group().broken);
  if (const Gone* gone = gone_for(operation)) return operation.fail(gone_error(*gone, operation));
  if (!disagreements_.empty()) recall_disagreement(operation);
}

/// An operation starts: what was said about it counts now, what was said about those before it
/// never will.
void Engine::recall_disagreement(Operation& operation) {
  const OperationId* id = operation.id();
  if (id == nullptr) return;
  for (const Disagreement& disagreement : disagreements_) {
    if (disagreement.id == *id) fail_disagreeing(operation, disagreement);
  }
  std::erase_if(disagreements_, [&](const Disagreement& disagreement) {
    return disagreement.id.communicator == id->communicator &&
           disagreement.id.sequence <= id->sequence;
  });
}

void Engine::fail_affected() {
  for (Operation* operation = first_; operation != nullptr; operation = operation->next) {
    if (operation->failing()) continue;
    if (const Gone* gone = gone_for(*operation)) {
      operation->fail(gone_error(*gone, *operation));
    } else if (aborted_) {
      operation->fail(*aborted_);
    }
  }
}

const Engine::Gone* Engine::gone_for(const Operation& operation) const {
  const std::optional<Rank> lost = operation.lost_peer();
  for (const Gone& gone : gone_) {
    if (!operation.group().contains(gone.rank)) continue;
    // Its words are not worth more than the transport's: what was lost on the way never comes.
    if (!gone.clean || gone.rank == lost || !operation.done_by(gone.rank, gone.farewell)) {
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

Error Engine::gone_error(const Gone& gone, const Operation& operation) const {
  Error error{ErrorKind::kRankFailed,
              process(gone.rank) + " " + gone.reason + " during " + operation.description()};
  error.culprit = ProcessName{gone.rank.value(), {}, 0};
  error.operation = operation.description();
  const auto index = static_cast<std::size_t>(gone.rank.value());
  if (index < options_.members.size()) {
    error.culprit->host = options_.members[index].host;
    error.culprit->pid = options_.members[index].pid;
  }
  return error;
}

void Engine::report_disagreement(Operation& operation) {
  if (operation.id() == nullptr) return refuse_message(operation);
  const Transfer& transfer = *operation.disagreement();
  Disagreement disagreement;
  std::memset(static_cast<void*>(&disagreement), 0, sizeof(disagreement));
  disagreement.id = *operation.id();
  disagreement.reporter = options_.self;
  disagreement.other = transfer.peer;
  disagreement.reported = transfer.signature;
  disagreement.seen = transfer.seen;
  disagreement.reported_bytes = transfer.bytes.value();
  disagreement.seen_bytes = transfer.seen_bytes.value();
  std::string message(kDisagreementWord);
  message.append(reinterpret_cast<const char*>(&disagreement), sizeof(disagreement));
  options_.flood(message);
  fail_disagreeing(operation, disagreement);
}

/// Its sender is done with it and knows nothing; only this rank can tell.
void Engine::refuse_message(Operation& operation) {
  const Transfer& transfer = *operation.disagreement();
  operation.disagreed(Error{ErrorKind::kMismatch, "ranks disagree on " + operation.description() +
                                                      ": " + process(transfer.peer) + " sent " +
                                                      options_.describe(transfer.seen) + ", " +
                                                      process(options_.self) + " expected " +
                                                      options_.describe(transfer.signature)});
}

void Engine::fail_disagreeing(Operation& operation, const Disagreement& disagreement) {
  const std::string reported = options_.describe(disagreement.reported);
  const std::string seen = options_.describe(disagreement.seen);
  std::string message = "ranks disagree on " + operation.description() + ": " +
                        process(disagreement.reporter) + " asked for " + reported + ", " +
                        process(disagreement.other) + " for " + seen;
  if (disagreement.reported == disagreement.seen) {
    message += " (messages of " + std::to_string(disagreement.reported_bytes) + " and " +
               std::to_string(disagreement.seen_bytes) + " bytes)";
  } else if (reported == seen) {
    message += " (the same algorithm with other options or counts)";
  }
  operation.disagreed(Error{ErrorKind::kMismatch, std::move(message)});
}

std::string Engine::state() {
  std::promise<std::string> asked;
  auto answer = asked.get_future();
  post_news([&](News& news) { news.askers.push_back(std::move(asked)); });
  // Whoever drives answers, also one that waits for its own operation and never stops.
  while (answer.wait_for(kAnswerPause) != std::future_status::ready) {
    if (!try_drive(Driver::kFenced)) continue;
    take_news();
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
