// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "base/asymmetric_fence.hpp"
#include "base/log.hpp"
#include "base/settings.hpp"
#include "bootstrap/complete.hpp"
#include "bootstrap/descriptor_limit.hpp"
#include "farandole/farandole.hpp"
#include "frontend/choices.hpp"
#include "frontend/context_state.hpp"
#include "frontend/cores.hpp"
#include "frontend/transports.hpp"
#include "transport/registry.hpp"

namespace farandole {
namespace {

Result<void> make_memory(Bytes reserve, Fabric& fabric) {
  auto memory = Memory::create(reserve);
  if (!memory) return memory.error();
  fabric.memory = *std::move(memory);
  auto doorbell = Doorbell::create(Doorbell::word_in(*fabric.memory));
  if (!doorbell) return doorbell.error();
  fabric.doorbell = *std::move(doorbell);
  return {};
}

Result<void> rendezvous(ContextState& state) {
  Session::Events events;
  EventRelay& relay = state.membership.relay;
  events.departed = [&relay](const Departure& departure) { relay.departed(departure); };
  events.notice = [&relay](Rank from, std::string_view text) { relay.notice(from, text); };
  events.started = [&relay] { relay.started(); };
  events.stalled = [&relay](Rank from, Rank to, std::string_view what) {
    relay.stalled(from, to, what);
  };
  state.fabric.fence.emplace();
  auto record = publish_transports(*state.fabric.memory, *state.fabric.doorbell);
  if (!record) return record.error();
  if (state.environment.job.rank == Rank{0}) {
    auto tuning = read_tuning_file();
    if (!tuning) return tuning.error();
    if (!tuning->empty()) record->emplace(kTuningEntry, *std::move(tuning));
  }
  record->emplace(kCoresEntry, own_core_share().text());
  auto session = Session::start(state.environment.job, *std::move(record), std::move(events));
  state.environment.job.store.reset();  // not needed any more
  if (!session) return session.error();
  state.membership.session = *std::move(session);
  state.membership.settle(state.environment.job.rank, state.membership.session->members());
  // Ranks that share cores sleep often, and each sleep would pay for the fence. All ranks of a host
  // decide alike.
  if (state.membership.shares_cores()) AsymmetricFence::disable();
  const auto& published = state.membership.members.front().record;
  const auto tuning = published.find(kTuningEntry);
  return tuning == published.end() ? Result<void>() : adopt_tuning(tuning->second, state.planning);
}

// Descriptors that a rank opens for itself: memory, doorbell, listener, control sockets, those that
// wake its threads, and a few at a time for calls and mappings.
constexpr std::size_t kOwnDescriptors = 24;

/// Makes room for the descriptors of the rendezvous, in which rank 0 is connected with every rank.
Result<void> room_to_start(const Job& job) {
  if (job.size == 1) return {};
  const bool meets_all = job.rank == Rank{0};
  return make_room_for_descriptors(
      kOwnDescriptors + (meets_all ? static_cast<std::size_t>(job.size) : 0),
      "rank " + std::to_string(job.rank.value()) + " of " + std::to_string(job.size));
}

/// Handles departures until the engine exists: no rank may wait for one that leaves. Between
/// processes, its departure ends the start of all ranks.
void watch_start(ContextState& state) {
  state.membership.relay.watch([&state](const Departure& gone) {
    for (const auto& transport : state.fabric.transports) {
      for (int rank = 0; state.membership.session && rank < state.environment.job.size; ++rank) {
        if (Rank{rank} != state.environment.job.rank) transport->peer_failed(Rank{rank});
      }
      if (state.membership.session) continue;
      if (gone.clean) {
        transport->peer_left(gone.rank);
      } else {
        transport->peer_failed(gone.rank);
      }
    }
  });
}

// A rank that cannot connect tells the others; ranks that are told nothing give up this much later.
constexpr std::chrono::seconds kReadyPatience{5};

/// This rank cannot start: tells the others, and returns the error that caused it.
Error give_up(Session* session, Error error) {
  if (session == nullptr) return error;
  if (error.kind != ErrorKind::kInvalidArgument) {
    auto failure = session->start_failure(Deadline::after(kEventTime));
    if (failure) error = *std::move(failure);
  }
  session->give_up(error);
  return error;
}

/// Returns once every rank of the job has reached this point.
Result<void> get_ready(ContextState& state, const std::vector<Transport*>& by_rank) {
  watch_start(state);
  if (auto connected = connect_early(state, by_rank); !connected) return connected;
  if (!state.membership.session) return {};
  return state.membership.session->begin(
      Deadline::after(state.environment.job.start_timeout + kReadyPatience));
}

/// What this rank has done its part in, encoded for the ranks that stay.
std::string final_state(ContextState& state) {
  FinalState all;
  const auto add = [&all](FinalState one) {
    all.next_sequence.merge(one.next_sequence);
    all.messages.merge(one.messages);
  };
  for (const auto& communicator : state.communicators.living()) add(communicator->final_state());
  for (FinalState& one : state.communicators.final_states()) add(std::move(one));
  all.limit(state.fabric.engine->withdrawn());
  return encode(all);
}

/// Warns only once, however often the process joins a job.
void warn_of_unknown_settings() {
  static std::once_flag warned;
  std::call_once(warned, [] {
    for (const std::string& warning : unknown_settings()) log(LogLevel::kWarning, warning);
  });
}

}  // namespace

Result<std::unique_ptr<Context>> Context::from_environment() {
  auto job = job_from_environment();
  return job ? from_job(*job) : job.error();
}

Result<std::unique_ptr<Context>> Context::from_job(const Job& job) {
  auto whole = complete(job);
  if (!whole) return whole.error();
  auto state = make_context_state();
  state->environment.job = *std::move(whole);
  state->environment.origin = Origin(state->environment.job.rank.value());
  if (state->environment.job.rank == Rank{0}) warn_of_unknown_settings();
  if (auto read = read_settings(state->environment); !read) return read.error();
  return join(std::move(state));
}

Result<std::unique_ptr<Context>> Context::join(std::shared_ptr<ContextState> state) {
  if (auto room = room_to_start(state->environment.job); !room) return room.error();
  if (auto made = make_memory(state->environment.memory_reserve, state->fabric); !made)
    return made.error();
  if (auto met = rendezvous(*state); !met)
    return give_up(state->membership.session.get(), met.error());
  auto by_rank = make_transports(*state);
  if (!by_rank) return give_up(state->membership.session.get(), by_rank.error());
  return begin(std::move(state), *by_rank);
}

Result<std::unique_ptr<Context>> Context::begin(std::shared_ptr<ContextState> state,
                                                const std::vector<Transport*>& by_rank) {
  auto options = engine_options(state->membership);
  if (!options) return give_up(state->membership.session.get(), options.error());
  if (auto ready = get_ready(*state, by_rank); !ready)
    return give_up(state->membership.session.get(), ready.error());
  std::vector<Transport*> distinct;
  for (const auto& transport : state->fabric.transports) distinct.push_back(transport.get());
  options->flood = [raw = state.get()](std::string_view message) {
    raw->membership.tell_all(message);
  };
  state->fabric.engine =
      Engine::create(std::move(distinct), *state->fabric.doorbell, *std::move(options));
  state->membership.relay.set_answer(
      [raw = state.get()](std::string_view text) { raw->membership.tell_all(text); });
  state->membership.relay.open(*state->fabric.engine);
  std::unique_ptr<Context> context(new Context(state));
  context->world_ = make_world(state, by_rank);
  return context;
}

Context::Context(std::shared_ptr<ContextState> state) : state_(std::move(state)) {}

Context::~Context() {
  shutdown();
}

Rank Context::rank() const {
  return state_->environment.job.rank;
}
int Context::size() const {
  return state_->environment.job.size;
}
int Context::local_rank() const {
  return state_->membership.own().local_rank;
}
int Context::local_size() const {
  return state_->membership.local_size();
}
const std::string& Context::started_by() const {
  return state_->environment.job.started_by;
}
bool Context::reaches_all_memory() const {
  const std::vector<Transport*>& by_rank = world_->group->transports;
  return std::ranges::all_of(by_rank, [](const Transport* transport) {
    return transport == nullptr || transport->capabilities().all_memory;
  });
}
bool Context::occupies_host() const {
  const int here = state_->membership.local_size(), cores = state_->membership.host_cores();
  return here == state_->environment.job.size && cores > 0 && cores <= here;
}
bool Context::shares_cores() const {
  return state_->membership.shares_cores();
}
Communicator Context::world() const {
  return Communicator(world_);
}

int Context::cross_rank() const {
  std::vector<std::string> hosts;
  for (const Member& member : state_->membership.members) {
    auto host = std::find(hosts.begin(), hosts.end(), member.host_id);
    if (host == hosts.end()) host = hosts.insert(hosts.end(), member.host_id);
    if (member.rank == state_->environment.job.rank) return static_cast<int>(host - hosts.begin());
  }
  return 0;
}

int Context::cross_size() const {
  std::set<std::string> hosts;
  for (const Member& member : state_->membership.members) hosts.insert(member.host_id);
  return static_cast<int>(hosts.size());
}

std::vector<MemberInfo> Context::members() const {
  std::vector<MemberInfo> members;
  for (const Member& member : state_->membership.members) {
    members.push_back({member.rank.value(), member.local_rank, member.host, member.pid});
  }
  return members;
}

Result<std::shared_ptr<std::byte>> Context::allocate(Bytes size) {
  // A forked child maps the same memory as its parent, but does not know what the parent allocates.
  if (!state_->environment.origin.here()) return state_->environment.origin.error("allocate");
  return allocate_shared(state_->fabric.memory, size);
}

Statistics Context::statistics() const {
  Statistics statistics;
  statistics.operations = state_->fabric.engine->finished_count();
  statistics.active_seconds = static_cast<double>(state_->fabric.engine->active_ns()) * 1e-9;
  statistics.wait_seconds = static_cast<double>(state_->fabric.engine->waited_ns()) * 1e-9;
  if (state_->membership.session)
    statistics.rejected_connections = state_->membership.session->rejected_connections();
  for (const auto& transport : state_->fabric.transports) {
    const TransportCounters counters = transport->counters();
    statistics.transports[std::string(transport->capabilities().name)] = {
        counters.sent_bytes, counters.sent_messages, counters.received_bytes,
        counters.received_messages};
  }
  for (const auto& communicator : state_->communicators.living()) {
    const std::lock_guard lock(communicator->plans_mutex);
    for (const auto& [key, plan] : communicator->plans) {
      Statistics::Calls& calls = statistics.plans[plan->label];
      const Statistics::Calls its = communicator->operations.calls_of(*plan);
      calls.calls += its.calls;
      calls.bytes += its.bytes;
    }
  }
  for (const auto& [label, gone] : state_->communicators.retired_calls()) {
    Statistics::Calls& calls = statistics.plans[label];
    calls.calls += gone.calls;
    calls.bytes += gone.bytes;
  }
  return statistics;
}

void Context::shutdown() {
  if (!state_->environment.origin.here()) return;  // a forked child is no rank of the job
  const std::lock_guard lock(state_->shutdown_mutex);
  if (state_->closed.exchange(true)) return;
  state_->membership.gathering.close();
  state_->fabric.engine->stop();  // this rank has not done its part in operations that this ends
  const std::string final_states = final_state(*state_);
  if (state_->membership.session) state_->membership.session->leave(final_states);
  if (state_->membership.tell_threads) {
    state_->membership.tell_threads(
        {state_->environment.job.rank, true, "shut down", final_states});
  }
  state_->membership.relay.close();
  if (state_->observability.records_timeline())
    (void)stop_timeline();  // the coordinators record nothing more
  const std::lock_guard transfers(state_->fabric.transfers_mutex);
  state_->fabric.transfers.clear();  // every gate is open, so devices get to their end
}

std::string Context::dump() const {
  if (!state_->environment.origin.here())
    return state_->environment.origin.error("dump").message + "\n";
  return state_->fabric.engine->state();
}

}  // namespace farandole
