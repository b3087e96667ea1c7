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

/// What the planner knows in addition to the call.
struct Planning {
  TuningTable tuning;  // of rank 0's FARANDOLE_TUNING; constant once the ranks have met
  std::mutex machine_mutex;
  std::unique_ptr<const Machine> machine;  // set_machine(); none: planner/default_machine.hpp
};

/// What a process holds while it belongs to a job; members are destroyed from the last to the
/// first. Functions take the part that they need.
struct ContextState {
  ContextState() = default;
  /// The session outlives the transports and reports events until it is destroyed.
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

/// A state that belongs to this process: a forked child neither uses nor destroys it.
std::shared_ptr<ContextState> make_context_state();

/// What runs a call, prepared for this rank, and how often it ran.
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
  // Whether it also runs chunks of different lengths; set when first needed. Under plans_mutex.
  std::optional<bool> takes_counts;
  /// The program bound to calls of one shape; the latest kBoundMax are kept. Under plans_mutex.
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

class LateErrors;

struct CommunicatorState {
  CommunicatorState();
  ~CommunicatorState() { retire(); }
  /// Nothing starts on this communicator any more. Idempotent.
  void retire();
  /// What this rank has started on this communicator.
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
  const std::shared_ptr<LateErrors> late_errors;
  std::mutex messages_mutex;
  std::map<std::int32_t, FinalState::Messages> messages;  // by peer in the group
};

/// The communicator of all ranks, and any other. Registers with the context.
std::shared_ptr<CommunicatorState> make_world(const std::shared_ptr<ContextState>& context,
                                              const std::vector<Transport*>& by_rank);
std::shared_ptr<CommunicatorState> make_communicator(const std::shared_ptr<ContextState>& context,
                                                     std::shared_ptr<const Group> group);

/// False once the library was shut down or the communicator freed or aborted, and in a forked child
/// of the process that they belong to.
inline bool is_open(const CommunicatorState& state) {
  return !state.context->closed.load(std::memory_order_acquire) &&
         !state.freed.load(std::memory_order_acquire) && !state.group->aborted() &&
         state.context->environment.origin.here();
}
/// Says why is_open() is false: kAborted if the communicator was aborted, else kInvalidArgument.
Error closed_error(const CommunicatorState& state, std::string_view caller);

/// The terms of an operation that is submitted now.
OperationTerms terms_of(const CommunicatorState& state, const std::string& name,
                        const Gate& gate = {});

/// "allreduce sum float32[10]", from the signature in a call's messages.
std::string describe(const Signature& signature);

/// Ranks and cores decide how a wait spins, FARANDOLE_SPIN how long.
///
/// Errors    kInvalidArgument naming FARANDOLE_SPIN.
Result<EngineOptions> engine_options(const Membership& membership);

}  // namespace farandole
