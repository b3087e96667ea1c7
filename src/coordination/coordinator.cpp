// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "farandole/coordinator.hpp"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>

#include "base/settings.hpp"
#include "coordination/clock_offset.hpp"
#include "coordination/coordinator_state.hpp"

namespace farandole {
namespace {

// How often a waiter checks a submission that another thread works on.
constexpr auto kSleep = std::chrono::seconds(1);
// Beyond this, every size counts as tiny or as huge.
constexpr int kSizeShiftMax = 16;

Result<std::chrono::nanoseconds> time_setting(std::string_view name) {
  auto seconds = number_setting(name);
  if (!seconds) return seconds.error();
  return std::chrono::nanoseconds(static_cast<std::int64_t>(*seconds * 1e9));
}

Result<bool> wait_until(SubmissionState& state, Deadline give_up) {
  if (!state.finished() && !state.origin.here()) return state.origin.error("wait");
  if (!state.finished()) {
    const std::lock_guard lock(state.bell->mutex);
    const bool drained = state.drained != Clock::time_point{};
    if (!drained && !std::exchange(state.bell->hurried, true)) state.bell->rung.notify_all();
  }
  while (!state.finished() && !give_up.passed()) {
    const auto left = give_up.when() - Clock::now();
    state.sleep_until_finished(std::min<std::chrono::nanoseconds>(left, kSleep));
  }
  if (!state.finished()) return false;
  if (!state.outcome) return state.outcome.error();
  return true;
}

/// The first coordinator of all ranks measures the offsets between the ranks' clocks, and starts
/// the timeline that the environment asks for.
Result<void> start_clock(Context& context, Communicator& communicator, const Membership& membership,
                         Observability& observability) {
  if (communicator.size() != context.size() || observability.clock_known.exchange(true)) return {};
  auto offset = clock_offset(communicator, membership.members);
  if (!offset) return offset.error();
  observability.clock_offset_ns = offset->count();
  auto path = text_setting("FARANDOLE_TIMELINE");
  if (!path) return path.error();
  if (path->empty() || observability.records_timeline()) return {};
  return context.start_timeline(*path);
}

}  // namespace

Result<CoordinatorOptions> CoordinatorOptions::from_environment() {
  auto cycle_time = time_setting("FARANDOLE_CYCLE_TIME");
  if (!cycle_time) return cycle_time.error();
  auto warning = time_setting("FARANDOLE_STALL_WARNING");
  if (!warning) return warning.error();
  auto shutdown = time_setting("FARANDOLE_STALL_SHUTDOWN");
  if (!shutdown) return shutdown.error();
  auto threshold = number_setting("FARANDOLE_FUSION_THRESHOLD");
  if (!threshold) return threshold.error();
  auto capacity = number_setting("FARANDOLE_CACHE_CAPACITY");
  if (!capacity) return capacity.error();
  return CoordinatorOptions{.cycle_time = *cycle_time,
                            .fusion_threshold = Bytes{static_cast<std::size_t>(*threshold)},
                            .cache_capacity = static_cast<std::size_t>(*capacity),
                            .stall_warning = *warning,
                            .stall_shutdown = *shutdown};
}

Result<void> Submission::wait() {
  auto ended = wait_until(*state_, Deadline::never());
  return ended ? Result<void>() : ended.error();
}

Result<bool> Submission::wait_for(std::chrono::milliseconds timeout) {
  return wait_until(*state_, Deadline::after(timeout));
}

Result<bool> Submission::test() {
  if (!state_->finished()) {
    if (!state_->origin.here()) return state_->origin.error("test");
    return false;
  }
  if (!state_->outcome) return state_->outcome.error();
  return true;
}

const std::shared_ptr<std::byte>& Submission::data() const {
  return state_->data;
}
const std::vector<std::int64_t>& Submission::shape() const {
  return state_->shape;
}
const std::vector<std::int64_t>& Submission::rows() const {
  return state_->rows;
}
DType Submission::dtype() const {
  return state_->call.dtype;
}
Rank Submission::last_joined() const {
  return state_->last_joined;
}

Coordinator::Coordinator(std::shared_ptr<CoordinatorState> state) : state_(std::move(state)) {}
Coordinator::~Coordinator() = default;

Result<std::unique_ptr<Coordinator>> Coordinator::create(Context& context,
                                                         Communicator communicator,
                                                         const CoordinatorOptions& options) {
  if (options.operations_max < 0) {
    return Error{ErrorKind::kInvalidArgument, "argument 'operations_max' is " +
                                                  std::to_string(options.operations_max) +
                                                  ", allowed is 0 or more."};
  }
  const std::shared_ptr<ContextState>& process = communicator.state_->context;
  if (auto started =
          start_clock(context, communicator, process->membership, process->observability);
      !started) {
    return started.error();
  }
  std::vector<Rank> everyone;
  for (int rank = 0; rank < communicator.size(); ++rank) everyone.push_back(Rank{rank});
  auto control = communicator.group(everyone);
  if (!control) return control.error();
  auto data = communicator.group(everyone);
  if (!data) return data.error();
  const std::uint32_t number = (*control)->state_->group->communicator;
  std::shared_ptr<CoordinatorState> state(
      new CoordinatorState(context, process, **control, number, **data, options),
      DeleteAtOrigin<CoordinatorState>());
  return std::unique_ptr<Coordinator>(new Coordinator(std::move(state)));
}

Result<std::vector<Submission>> Coordinator::submit(std::vector<TensorCall> calls,
                                                    std::string group) {
  return state_->submit(std::move(calls), std::move(group));
}

Result<Submission> Coordinator::join() {
  return state_->join();
}

void Coordinator::close() {
  state_->close();
}

Result<void> Coordinator::configure(std::chrono::nanoseconds cycle_time, Bytes fusion_threshold,
                                    int size_shift) {
  if (cycle_time < std::chrono::nanoseconds(0)) {
    return Error{ErrorKind::kInvalidArgument, "argument 'cycle_time' is " +
                                                  std::to_string(cycle_time.count()) +
                                                  " ns, allowed is 0 or more."};
  }
  if (std::abs(size_shift) > kSizeShiftMax) {
    return Error{ErrorKind::kInvalidArgument,
                 "argument 'size_shift' is " + std::to_string(size_shift) + ", allowed is -" +
                     std::to_string(kSizeShiftMax) + " to " + std::to_string(kSizeShiftMax) + "."};
  }
  return state_->configure({.cycle_time_ns = static_cast<std::uint64_t>(cycle_time.count()),
                            .fusion_threshold_bytes = fusion_threshold.value(),
                            .size_shift = size_shift});
}

CoordinatorOptions Coordinator::options() const {
  return state_->options();
}

Coordinator::Statistics Coordinator::statistics() const {
  return state_->statistics();
}

}  // namespace farandole
