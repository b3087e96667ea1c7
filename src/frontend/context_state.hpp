// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "engine/engine.hpp"
#include "engine/executable.hpp"
#include "farandole/farandole.hpp"
#include "frontend/communicator_registry.hpp"
#include "frontend/environment.hpp"
#include "frontend/fabric.hpp"
#include "frontend/membership.hpp"
#include "frontend/observability.hpp"
#include "frontend/operation_cache.hpp"
#include "model/machine.hpp"
#include "planner/plan_table.hpp"
#include "schedule/program.hpp"

namespace farandole {

/// How long a rank that cannot reach another waits for a membership event that explains it.
inline constexpr std::chrono::milliseconds kEventTime{1000};

/// What the planner knows beside a call.
struct Planning {
  TuningTable tuning;  // of rank 0's FARANDOLE_TUNING; constant once the ranks have met
  std::mutex machine_mutex;
  std::unique_ptr<const Machine> machine;  // set_machine(); none: planner/default_machine.hpp
};

/// What a process holds while it belongs to a job; members are destroyed from the last to the
/// first. Functions take the part that they need.
struct ContextState {
  ContextState() = default;
  /// The session, which talks until it is destroyed, outlives the transports.
  ~ContextState() { membership.relay.close(); }

  Environment environment;
  Planning planning;
  Membership membership;
  Fabric fabric;
  CommunicatorRegistry communicators;
  Observability observability;
  std::mutex shutdown_mutex;
  std::atomic<bool> closed{false};
};

/// One of this process, which a forked child neither uses nor takes apart.
std::shared_ptr<ContextState> make_context_state();

/// What runs a call, made ready for this rank, and how often it ran.
struct Plan {
  Executable executable;
  /// Null if a delegate runs it.
  const std::shared_ptr<const Program>& program() const {
    static const std::shared_ptr<const Program> none;
    const auto* found = std::get_if<std::shared_ptr<const Program>>(&executable);
    return found == nullptr ? none : *found;
  }
  std::string_view delegate_name;  // empty if a program runs it
  std::uint8_t algorithm = 0;      // index_of() its row
  std::uint16_t fingerprint = 0;   // of the schedule, all options included
  bool touches_out = false;        // this rank's program does
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
  FinalState final_state();

  std::shared_ptr<ContextState> context;
  std::shared_ptr<const Group> group;
  bool peer_memory = false;
  std::atomic<bool> freed{false};
  std::atomic<std::uint32_t> next_sequence{0};
  std::mutex plans_mutex;
  std::unique_ptr<PlanTable> choices;  // made for the first call that chooses
  std::map<PlanKey, std::shared_ptr<Plan>> plans;
  std::map<const Delegate*, std::shared_ptr<DelegateGroup>> delegates;  // that were joined
  OperationCache operations;
  std::set<Collective> unfit;  // for which FARANDOLE_ALGORITHM does not suit this many ranks
  std::mutex messages_mutex;
  std::map<std::int32_t, FinalState::Messages> messages;  // by peer in the group
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
         state.context->environment.origin.here();
}
/// Which of them it was: kAborted, else kInvalidArgument.
Error closed_error(const CommunicatorState& state, std::string_view caller);

/// What an operation that is submitted now gets.
OperationTerms terms_of(const CommunicatorState& state, const std::string& name,
                        const Gate& gate = {});

/// "allreduce sum float32[10]"; the inverse of what a call puts into its messages.
std::string describe(const Signature& signature);

/// Ranks and cores decide how a wait spins, FARANDOLE_SPIN how long. Errors as above.
Result<EngineOptions> engine_options(const Membership& membership);

}  // namespace farandole
