// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/asymmetric_fence.hpp"
#include "base/origin.hpp"
#include "bootstrap/session.hpp"
#include "device/cpu/memory.hpp"
#include "engine/engine.hpp"
#include "farandole/farandole.hpp"
#include "farandole/job.hpp"
#include "frontend/cores.hpp"
#include "frontend/gathering.hpp"
#include "frontend/operation_cache.hpp"
#include "model/machine.hpp"
#include "planner/plan_table.hpp"
#include "schedule/program.hpp"
#include "trace/timeline.hpp"
#include "transport/doorbell.hpp"
#include "transport/transport.hpp"

namespace farandole {

/// Passes the control plane's news to the engine, and keeps those that come before there is one.
/// Those about communicators that are to be made go to `gathering` at once.
/// Threads   any.
class NewsRelay {
 public:
  explicit NewsRelay(Gathering& gathering) : gathering_(gathering) {}
  /// Floods what a message is answered with; called without a lock.
  void set_answer(Gathering::Flood answer);
  void departed(const Departure& departure);
  void notice(Rank from, std::string_view message);
  void suspect(Rank peer);
  void stalled(Rank from, Rank to, std::string_view what);
  /// Told when a rank calls for a cycle of the coordinator with this number.
  void add_cycle_listener(std::uint32_t number, std::function<void()> called);
  void remove_cycle_listener(std::uint32_t number);
  /// Until started(), open() or close(): told who left, and at once who left already.
  void watch(std::function<void(const Departure&)> gone);
  /// Every rank is ready to begin: who leaves from here on may have done its part.
  void started();
  /// Waits until `limit` for a rank for which `concerned` holds to have died: the first of them.
  std::optional<Departure> death(const std::function<bool(Rank)>& concerned, Deadline limit);
  /// The engine outlives the relay's last call after close().
  void open(Engine& engine);
  void close();

 private:
  void answer(const std::string& message);

  Gathering& gathering_;
  std::mutex mutex_;
  Gathering::Flood answer_;
  Engine* engine_ = nullptr;
  std::function<void(const Departure&)> watch_;
  std::map<std::uint32_t, std::function<void()>> cycle_listeners_;
  std::vector<Departure> early_;
  std::vector<Departure> deaths_;
  std::condition_variable died_;
  std::vector<std::pair<Rank, std::string>> early_notices_;
};

/// So long a rank that cannot reach another waits for news: it may have met the trace of a death.
inline constexpr std::chrono::milliseconds kNewsTime{1000};

/// What a rank floods to have everybody take part in a coordinator's cycle.
std::string cycle_call(std::uint32_t number);

/// What a process holds while it belongs to a job; members are destroyed from the last to the
/// first.
struct ContextState {
  ContextState() = default;
  /// The session, which talks until it is destroyed, outlives the transports.
  ~ContextState() { relay.close(); }

  Origin origin;
  std::optional<AsymmetricFence::User> fence;  // none when ranks are threads
  Job job;
  Members members;
  Bytes memory_reserve;            // FARANDOLE_MEMORY
  bool check = false;              // FARANDOLE_CHECK
  std::string transport = "auto";  // FARANDOLE_TRANSPORT, or the name of a row of the registry
  bool peer_memory = true;         // false: stage everything, for tests
  std::string algorithm;           // FARANDOLE_ALGORITHM, empty: chosen per call
  TuningTable tuning;              // of rank 0's FARANDOLE_TUNING
  std::mutex machine_mutex;
  std::unique_ptr<const Machine> machine;  // set_machine(); none: planner/default_machine.hpp
  std::map<std::string, int> cores;        // cores_by_host(members)
  std::chrono::milliseconds operation_timeout{0};
  std::shared_ptr<Memory> memory;
  std::unique_ptr<Doorbell> doorbell;
  Gathering gathering;
  NewsRelay relay{gathering};
  std::unique_ptr<Session> session;  // none when ranks are threads
  std::vector<std::unique_ptr<Transport>> transports;
  std::unique_ptr<Engine> engine;
  std::mutex shutdown_mutex;
  std::atomic<bool> closed{false};
  std::mutex communicators_mutex;
  std::vector<std::weak_ptr<CommunicatorState>> communicators;
  std::uint32_t last_communicator = 0;  // number of the newest, the world's is 0
  // Of communicators that are no more: what others may still have to know when this rank leaves,
  // of the last kRetiredMax, and what their plans counted.
  std::deque<Farewell> retired;
  std::map<std::string, Statistics::Calls> retired_plans;
  static constexpr std::size_t kRetiredMax = 256;
  // What is recorded while it is on; null otherwise.
  std::mutex timeline_mutex;
  std::shared_ptr<coordinator::Timeline> timeline;
  std::atomic<bool> timeline_on{false};
  std::atomic<bool> clock_known{false};
  std::atomic<std::int64_t> clock_offset_ns{0};  // this host's clock plus this is rank 0's
  std::shared_ptr<coordinator::Timeline> current_timeline();
  /// Floods a message to the relays of all other ranks.
  void tell_all(std::string_view message);
  // Ranks as threads: what a session does between processes.
  std::function<void(const Departure&)> tell_threads;
  std::function<void(std::string_view)> flood;
};

/// One of this process, which a forked child neither uses nor takes apart.
std::shared_ptr<ContextState> make_context_state();

/// A verified schedule made ready for this rank, and how often it ran.
struct Plan {
  std::shared_ptr<const Program> program;
  std::uint8_t algorithm = 0;     // index in algorithms()
  std::uint16_t fingerprint = 0;  // of the schedule, all options included
  bool touches_out = false;       // this rank's program does
  // Whether it also runs chunks of different lengths, once somebody asked. Under plans_mutex.
  std::optional<bool> takes_counts;
  /// Bound to calls of equal shape, the latest kBoundMax. Under plans_mutex.
  struct Bound {
    DType dtype = DType::kUInt8;
    Count count;
    std::optional<std::int64_t> in_offset;
    bool works_at_once = true;  // the device
    std::shared_ptr<const BoundProgram> program;
  };
  static constexpr std::size_t kBoundMax = 8;
  std::deque<Bound> bound;
  std::string label;  // collective, algorithm and transport
  std::atomic<std::uint64_t> calls{0}, bytes{0};
};

/// Spec, root, fixed order, and whether all ranks end together.
using PlanKey = std::tuple<Collective, std::string, std::int64_t, bool, bool>;

struct CommunicatorState {
  CommunicatorState() = default;
  ~CommunicatorState() { retire(); }
  /// Idempotent: nothing starts here any more.
  void retire();
  /// What this rank has started here.
  Farewell farewell();

  std::shared_ptr<ContextState> context;
  std::shared_ptr<const Group> group;
  bool peer_memory = false;
  std::atomic<bool> freed{false};
  std::atomic<std::uint32_t> next_sequence{0};
  std::mutex plans_mutex;
  std::unique_ptr<PlanTable> choices;  // made for the first call that chooses
  std::map<PlanKey, std::shared_ptr<Plan>> plans;
  OperationCache operations;
  std::set<Collective> unfit;  // for which FARANDOLE_ALGORITHM does not suit this many ranks
  std::mutex messages_mutex;
  std::map<std::int32_t, Farewell::Messages> messages;  // by peer in the group
};

/// The communicator of all ranks, and any other. Registers with the context.
std::shared_ptr<CommunicatorState> make_world(const std::shared_ptr<ContextState>& context,
                                              const std::vector<Transport*>& by_rank);
std::shared_ptr<CommunicatorState> make_communicator(const std::shared_ptr<ContextState>& context,
                                                     std::shared_ptr<const Group> group);

/// Whether neither the library was shut down nor the communicator freed or aborted, nor this
/// process forked from the one that they belong to.
inline bool is_open(const CommunicatorState& state) {
  return !state.context->closed.load(std::memory_order_acquire) &&
         !state.freed.load(std::memory_order_acquire) && !state.group->aborted() &&
         state.context->origin.here();
}
/// Which of them it was: kAborted, else kInvalidArgument.
Error closed_error(const CommunicatorState& state, std::string_view caller);

/// What an operation that is submitted now gets.
OperationTerms terms_of(const CommunicatorState& state, const std::string& name,
                        const Gate& gate = {});

/// Every communicator that is still there. The caller drops them without holding a lock.
std::vector<std::shared_ptr<CommunicatorState>> living_communicators(ContextState& context);

/// "allreduce sum float32[10]"; the inverse of what a call puts into its messages.
std::string describe(const Signature& signature);

/// Settings that every context reads; what a call without its own wishes gets. Errors:
/// kInvalidArgument naming the variable.
Result<void> read_settings(ContextState& state);

/// Takes over the members that have met. What the starter said of this host's ranks is only good
/// for meeting them: it may know nothing of them, or count otherwise.
void settle(ContextState& state, Members members);
/// The member that this process is.
const Member& own_member(const ContextState& state);
/// Members on this host.
int local_size(const ContextState& state);
/// Cores that this host's ranks can keep busy; 0: unknown.
int host_cores(const ContextState& state);
/// Whether this host's ranks are more than that.
bool shares_cores(const ContextState& state);

/// Ranks and cores decide how a wait spins, FARANDOLE_SPIN how long. Errors as above.
Result<EngineOptions> engine_options(const ContextState& state);

}  // namespace farandole
