// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "frontend/context_state.hpp"

#include <algorithm>

#include "base/settings.hpp"

namespace farandole {
namespace {

// With a core per rank a peer answers within microseconds. A core that is shared, with a rank or
// with another process, is yielded soon, since the peer may need it for its answer: two ranks on
// one core took 239 us for 4 bytes while both paused for 100 us, and 7 us on two cores.
constexpr auto kPause = std::chrono::microseconds(5);

}  // namespace

std::shared_ptr<ContextState> make_context_state() {
  return {new ContextState, DeleteAtOrigin<ContextState>()};
}

Result<EngineOptions> engine_options(const Membership& membership) {
  EngineOptions options;
  options.members = membership.members;
  options.self = membership.self;
  options.describe = &describe;
  options.pause = membership.shares_cores() ? std::chrono::microseconds(0) : kPause;
  auto spin = number_setting("FARANDOLE_SPIN");
  if (!spin) return spin.error();
  if (*spin >= 0) options.spin = std::chrono::microseconds(static_cast<std::int64_t>(*spin * 1e6));
  return options;
}

std::shared_ptr<CommunicatorState> make_world(const std::shared_ptr<ContextState>& context,
                                              const std::vector<Transport*>& by_rank) {
  auto group = std::make_shared<Group>();
  group->self = context->environment.job.rank;
  group->transports = by_rank;
  for (int rank = 0; rank < context->environment.job.size; ++rank)
    group->world_ranks.push_back(Rank{rank});
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
  context->fabric.engine->joined(*state->group, state->next_sequence);
  context->communicators.add(state);
  return state;
}

void CommunicatorState::retire() {
  if (!context->environment.origin.here() || freed.exchange(true)) return;
  context->fabric.engine->left(*group);
  FinalState final_states = final_state();
  CommunicatorRegistry::Calls counted;
  const std::lock_guard lock(plans_mutex);
  for (const auto& [key, plan] : plans) {
    Statistics::Calls& calls = counted[plan->label];
    const Statistics::Calls its = operations.calls_of(*plan);
    calls.calls += its.calls;
    calls.bytes += its.bytes;
  }
  context->communicators.retire(std::move(final_states), counted);
  plans.clear();
  delegates.clear();
  operations.clear();
}

FinalState CommunicatorState::final_state() {
  FinalState words;
  words.next_sequence[group->communicator] = next_sequence.load();
  const std::lock_guard lock(messages_mutex);
  for (const auto& [peer, count] : messages) words.messages[{group->communicator, peer}] = count;
  return words;
}

OperationTerms terms_of(const CommunicatorState& state, const std::string& name, const Gate& gate) {
  return {state.group, name, gate, state.context->environment.operation_timeout, Ticks::now()};
}

Error closed_error(const CommunicatorState& state, std::string_view caller) {
  if (!state.context->environment.origin.here())
    return state.context->environment.origin.error(caller);
  const bool closed = state.context->closed.load(std::memory_order_acquire);
  const bool freed = state.freed.load(std::memory_order_acquire);
  if (!closed && !freed) return state.context->fabric.engine->abort_error(*state.group);
  return Error{ErrorKind::kInvalidArgument,
               std::string(caller) + ": " +
                   (closed ? "the library has been shut down." : "the communicator was freed.")};
}

}  // namespace farandole
