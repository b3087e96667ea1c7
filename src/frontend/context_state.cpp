// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "frontend/context_state.hpp"

#include <algorithm>

#include "algorithms/registry.hpp"
#include "base/settings.hpp"
#include "transport/registry.hpp"

namespace farandole {
namespace {

// With a core per rank a peer answers within microseconds. A core that is shared, with a rank or
// with somebody else, is given away soon, since the answer may wait for it: two ranks on one core
// took 239 us for 4 bytes while both paused for 100 us, and 7 us on two cores.
constexpr auto kPause = std::chrono::microseconds(5);

Result<std::chrono::milliseconds> seconds_setting(std::string_view name) {
  auto seconds = number_setting(name);
  if (!seconds) return seconds.error();
  return std::chrono::milliseconds(static_cast<std::int64_t>(*seconds * 1000));
}

constexpr std::string_view kCycleCall = "cycle ";

}  // namespace

std::string cycle_call(std::uint32_t number) {
  return std::string(kCycleCall) + std::to_string(number);
}

std::shared_ptr<ContextState> make_context_state() {
  return {new ContextState, DeleteAtOrigin<ContextState>()};
}

void ContextState::tell_all(std::string_view message) {
  if (session) {
    session->flood(message);
  } else {
    flood(message);
  }
}

std::shared_ptr<coordinator::Timeline> ContextState::current_timeline() {
  if (!timeline_on.load(std::memory_order_relaxed)) return nullptr;
  const std::lock_guard lock(timeline_mutex);
  return timeline;
}

void NewsRelay::set_answer(Gathering::Flood answer) {
  const std::lock_guard lock(mutex_);
  answer_ = std::move(answer);
}

void NewsRelay::departed(const Departure& departure) {
  gathering_.departed(departure);
  const std::lock_guard lock(mutex_);
  if (!departure.clean) deaths_.push_back(departure);
  died_.notify_all();
  if (engine_ != nullptr) {
    engine_->departed(departure);
  } else {
    early_.push_back(departure);
    if (watch_) watch_(departure);
  }
}

void NewsRelay::watch(std::function<void(const Departure&)> gone) {
  const std::lock_guard lock(mutex_);
  watch_ = std::move(gone);
  for (const Departure& departure : early_) watch_(departure);
}

std::optional<Departure> NewsRelay::death(const std::function<bool(Rank)>& concerned,
                                          Deadline limit) {
  std::unique_lock lock(mutex_);
  for (;;) {
    for (const Departure& death : deaths_) {
      if (concerned(death.rank)) return death;
    }
    if (limit.passed()) return std::nullopt;
    died_.wait_until(lock, limit.when());
  }
}

void NewsRelay::started() {
  const std::lock_guard lock(mutex_);
  watch_ = nullptr;
}

void NewsRelay::add_cycle_listener(std::uint32_t number, std::function<void()> called) {
  const std::lock_guard lock(mutex_);
  cycle_listeners_[number] = std::move(called);
}

void NewsRelay::remove_cycle_listener(std::uint32_t number) {
  const std::lock_guard lock(mutex_);
  cycle_listeners_.erase(number);
}

void NewsRelay::notice(Rank from, std::string_view message) {
  std::string answer;
  const bool taken = gathering_.notice(from, message, answer);
  if (!answer.empty()) return this->answer(answer);
  if (taken) return;
  const std::lock_guard lock(mutex_);
  if (message.starts_with(kCycleCall)) {
    for (const auto& [number, called] : cycle_listeners_) {
      if (message == cycle_call(number)) called();
    }
    return;
  }
  if (engine_ != nullptr) {
    engine_->notice(from, message);
  } else {
    early_notices_.emplace_back(from, message);
  }
}

void NewsRelay::answer(const std::string& message) {
  Gathering::Flood flood;
  {
    const std::lock_guard lock(mutex_);
    if (engine_ == nullptr) return;
    engine_->notice(Rank{0}, message);
    flood = answer_;
  }
  if (flood) flood(message);
}

void NewsRelay::suspect(Rank peer) {
  const std::lock_guard lock(mutex_);
  if (engine_ != nullptr) engine_->suspect(peer);
}

void NewsRelay::stalled(Rank from, Rank to, std::string_view what) {
  const std::lock_guard lock(mutex_);
  if (engine_ != nullptr) engine_->stalled(from, to, what);
}

void NewsRelay::open(Engine& engine) {
  const std::lock_guard lock(mutex_);
  engine_ = &engine;
  for (const Departure& departure : early_) engine.departed(departure);
  for (const auto& [from, message] : early_notices_) engine.notice(from, message);
  early_.clear();
  early_notices_.clear();
}

void NewsRelay::close() {
  const std::lock_guard lock(mutex_);
  engine_ = nullptr;
  watch_ = nullptr;
  answer_ = nullptr;
}

Result<void> read_settings(ContextState& state) {
  auto reserve = number_setting("FARANDOLE_MEMORY");
  if (!reserve) return reserve.error();
  state.memory_reserve = Bytes{static_cast<std::size_t>(*reserve)};
  auto check = flag_setting("FARANDOLE_CHECK");
  if (!check) return check.error();
  state.check = *check;
  auto timeout = seconds_setting("FARANDOLE_OPERATION_TIMEOUT");
  if (!timeout) return timeout.error();
  state.operation_timeout = *timeout;
  auto transport = text_setting("FARANDOLE_TRANSPORT");
  if (!transport) return transport.error();
  const auto names = transport_names();
  if (*transport != "auto" && std::ranges::find(names, *transport) == names.end()) {
    return Error{ErrorKind::kInvalidArgument, "FARANDOLE_TRANSPORT is '" + *transport +
                                                  "', allowed is " + allowed_transports() + "."};
  }
  state.transport = *transport;
  auto algorithm = text_setting("FARANDOLE_ALGORITHM");
  if (!algorithm) return algorithm.error();
  if (*algorithm == "auto") return {};
  std::string known;
  for (const AlgorithmInfo* info : algorithms()) {
    if (info->name == algorithm->substr(0, algorithm->find(':'))) state.algorithm = *algorithm;
    if (known.find(info->name) == std::string::npos) known += ", " + std::string(info->name);
  }
  if (!state.algorithm.empty()) return {};
  return Error{ErrorKind::kInvalidArgument,
               "FARANDOLE_ALGORITHM is '" + *algorithm + "', allowed is auto" + known + "."};
}

void settle(ContextState& state, Members members) {
  state.members = std::move(members);
  state.cores = cores_by_host(state.members);
}

const Member& own_member(const ContextState& state) {
  return state.members[static_cast<std::size_t>(state.job.rank.value())];
}

int local_size(const ContextState& state) {
  const std::string& here = own_member(state).host_id;
  return static_cast<int>(std::ranges::count(state.members, here, &Member::host_id));
}

int host_cores(const ContextState& state) {
  const auto found = state.cores.find(own_member(state).host_id);
  return found == state.cores.end() ? 0 : found->second;
}

bool shares_cores(const ContextState& state) {
  const int cores = host_cores(state);
  return cores > 0 && local_size(state) > cores;
}

Result<EngineOptions> engine_options(const ContextState& state) {
  EngineOptions options;
  options.members = state.members;
  options.self = state.job.rank;
  options.describe = &describe;
  options.pause = shares_cores(state) ? std::chrono::microseconds(0) : kPause;
  auto spin = number_setting("FARANDOLE_SPIN");
  if (!spin) return spin.error();
  if (*spin >= 0) options.spin = std::chrono::microseconds(static_cast<std::int64_t>(*spin * 1e6));
  return options;
}

std::shared_ptr<CommunicatorState> make_world(const std::shared_ptr<ContextState>& context,
                                              const std::vector<Transport*>& by_rank) {
  auto group = std::make_shared<Group>();
  group->self = context->job.rank;
  group->transports = by_rank;
  for (int rank = 0; rank < context->job.size; ++rank) group->world_ranks.push_back(Rank{rank});
  return make_communicator(context, std::move(group));
}

std::shared_ptr<CommunicatorState> make_communicator(const std::shared_ptr<ContextState>& context,
                                                     std::shared_ptr<const Group> group) {
  auto state = std::make_shared<CommunicatorState>();
  state->context = context;
  state->peer_memory = std::ranges::all_of(group->transports, [](const Transport* transport) {
    return transport == nullptr || transport->capabilities().peer_memory;
  });
  state->group = std::move(group);
  context->engine->joined(*state->group, state->next_sequence);
  const std::lock_guard lock(context->communicators_mutex);
  std::erase_if(context->communicators, [](const auto& weak) { return weak.expired(); });
  context->communicators.push_back(state);
  return state;
}

void CommunicatorState::retire() {
  if (!context->origin.here() || freed.exchange(true)) return;
  context->engine->left(*group);
  Farewell last_words = farewell();
  const std::scoped_lock lock(context->communicators_mutex, plans_mutex);
  context->retired.push_back(std::move(last_words));
  if (context->retired.size() > ContextState::kRetiredMax) context->retired.pop_front();
  for (const auto& [key, plan] : plans) {
    Statistics::Calls& calls = context->retired_plans[plan->label];
    const Statistics::Calls its = operations.calls_of(*plan);
    calls.calls += its.calls;
    calls.bytes += its.bytes;
  }
  plans.clear();
  operations.clear();
}

Farewell CommunicatorState::farewell() {
  Farewell words;
  words.next_sequence[group->communicator] = next_sequence.load();
  const std::lock_guard lock(messages_mutex);
  for (const auto& [peer, count] : messages) words.messages[{group->communicator, peer}] = count;
  return words;
}

OperationTerms terms_of(const CommunicatorState& state, const std::string& name, const Gate& gate) {
  return {state.group, name, gate, state.context->operation_timeout, Ticks::now()};
}

Error closed_error(const CommunicatorState& state, std::string_view caller) {
  if (!state.context->origin.here()) return state.context->origin.error(caller);
  const bool closed = state.context->closed.load(std::memory_order_acquire);
  const bool freed = state.freed.load(std::memory_order_acquire);
  if (!closed && !freed) return state.context->engine->abort_error(*state.group);
  return Error{ErrorKind::kInvalidArgument,
               std::string(caller) + ": " +
                   (closed ? "the library has been shut down." : "the communicator was freed.")};
}

std::vector<std::shared_ptr<CommunicatorState>> living_communicators(ContextState& context) {
  std::vector<std::shared_ptr<CommunicatorState>> living;
  const std::lock_guard lock(context.communicators_mutex);
  for (const auto& weak : context.communicators) {
    if (auto communicator = weak.lock()) living.push_back(std::move(communicator));
  }
  return living;
}

}  // namespace farandole
