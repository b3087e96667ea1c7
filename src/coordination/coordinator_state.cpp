// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "coordination/coordinator_state.hpp"

#include <algorithm>
#include <utility>

#include "base/log.hpp"

namespace farandole {
namespace {

using coordinator::Batch;
using coordinator::Parameters;
using coordinator::SharedRequest;

// The pause between cycles doubles up to this while nothing changes.
constexpr auto kPauseMax = std::chrono::milliseconds(10);
constexpr int kDoublingsMax = 16;
// Enough to pack the next batch while others are in flight; each holds a fusion buffer.
constexpr int kOperationsMax = 4;

std::chrono::milliseconds patience(const CoordinatorOptions& options) {
  // Half of the warning time, so that the missing ranks are known when it is over.
  return std::chrono::duration_cast<std::chrono::milliseconds>(options.stall_warning) / 2;
}

std::size_t operations_max(const Context& context, const CoordinatorOptions& options) {
  const int chosen = context.occupies_host() ? 1 : kOperationsMax;
  return static_cast<std::size_t>(options.operations_max > 0 ? options.operations_max : chosen);
}

Parameters parameters_of(const CoordinatorOptions& options) {
  return {.cycle_time_ns = static_cast<std::uint64_t>(options.cycle_time.count()),
          .fusion_threshold_bytes = options.fusion_threshold.value(),
          .size_shift = options.size_shift};
}

coordinator::ControllerOptions controller_options(const Communicator& communicator,
                                                  const CoordinatorOptions& options) {
  coordinator::RankNames names;
  for (const Rank rank : communicator.world_ranks()) names.push_back(rank.value());
  return {.rank = communicator.rank().value(),
          .rank_count = communicator.size(),
          .cache_capacity = options.cache_capacity,
          .stall_warning = options.stall_warning,
          .stall_shutdown = options.stall_shutdown,
          .names = std::move(names),
          .parameters = parameters_of(options)};
}

}  // namespace

CoordinatorState::CoordinatorState(Context& context, std::shared_ptr<ContextState> process,
                                   Communicator control, std::uint32_t control_number,
                                   Communicator data, const CoordinatorOptions& options)
    : options_(options),
      process_(std::move(process)),
      number_(control_number),
      rank_count_(control.size()),
      network_(
          control, patience(options),
          [this] { process_->membership.tell_all(cycle_call(number_)); }, stopping_),
      controller_(controller_options(control, options)),
      parameters_(parameters_of(options)),
      executor_(context, process_, std::move(data), operations_max(context, options),
                [this](SubmissionState& done) { forget(done); }) {
  process_->membership.relay.add_cycle_listener(number_, [this] {
    const std::lock_guard lock(bell_->mutex);
    called_ = true;
    bell_->rung.notify_all();
  });
  thread_ = std::thread([this] { run(); });
}

void CoordinatorState::close() {
  if (!process_->environment.origin.here()) return;  // its thread is the parent's
  const std::lock_guard closing(close_mutex_);
  if (!thread_.joinable()) return;
  process_->membership.relay.remove_cycle_listener(number_);
  {
    const std::lock_guard lock(bell_->mutex);
    stopping_ = true;
  }
  bell_->rung.notify_all();
  thread_.join();
  executor_.drain();
  fail_everything({ErrorKind::kInvalidArgument,
                   "The coordinator was closed before all ranks had asked for this."});
}

Result<std::vector<Submission>> CoordinatorState::submit(std::vector<TensorCall> calls,
                                                         std::string group) {
  if (!process_->environment.origin.here())
    return process_->environment.origin.error(calls.empty() ? "submit" : name(calls[0].collective));
  for (const TensorCall& call : calls) {
    if (auto valid = check_tensor_call(call, rank_count_); !valid) return valid.error();
  }
  std::vector<SharedSubmission> tasks;
  std::vector<Submission> handles;
  const std::size_t group_size = group.empty() ? 1 : calls.size();
  for (TensorCall& call : calls) {
    auto task = std::make_shared<SubmissionState>(process_->environment.origin);
    task->request =
        std::make_shared<const coordinator::TensorRequest>(make_request(call, group, group_size));
    task->call = std::move(call);
    task->bell = bell_;
    task->submitted = Clock::now();
    tasks.push_back(task);
    handles.emplace_back(task);
  }
  const std::lock_guard lock(bell_->mutex);
  if (broken_) return *broken_;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    if (open_.emplace(tasks[i]->call.name, tasks[i]).second) continue;
    const std::string twice = tasks[i]->call.name;
    while (i-- > 0) open_.erase(tasks[i]->call.name);
    return Error{ErrorKind::kInvalidArgument,
                 "argument 'name' is '" + twice +
                     "', which is in flight already; allowed are names that are not."};
  }
  if (tasks.empty()) return handles;
  if (incoming_.empty()) first_incoming_ = Clock::now();
  if (group.empty()) {
    for (const SharedSubmission& task : tasks) incoming_.push_back({task});
  } else {
    incoming_.push_back(std::move(tasks));
  }
  bell_->rung.notify_all();
  return handles;
}

Result<Submission> CoordinatorState::join() {
  if (!process_->environment.origin.here()) return process_->environment.origin.error("join");
  auto task = std::make_shared<SubmissionState>(process_->environment.origin);
  task->bell = bell_;
  const std::lock_guard lock(bell_->mutex);
  if (broken_) return *broken_;
  if (join_) {
    return Error{ErrorKind::kInvalidArgument,
                 "join: this rank has joined already, and not all ranks have."};
  }
  join_ = task;
  join_incoming_ = true;
  bell_->rung.notify_all();
  return Submission(task);
}

Result<void> CoordinatorState::configure(const Parameters& parameters) {
  if (!process_->environment.origin.here()) return process_->environment.origin.error("configure");
  const std::lock_guard lock(bell_->mutex);
  wanted_ = parameters;  // sent with the next cycle, which this does not start
  return {};
}

CoordinatorOptions CoordinatorState::options() const {
  const std::lock_guard lock(bell_->mutex);
  CoordinatorOptions options = options_;
  options.cycle_time = std::chrono::nanoseconds(parameters_.cycle_time_ns);
  options.fusion_threshold = Bytes{parameters_.fusion_threshold_bytes};
  options.size_shift = parameters_.size_shift;
  return options;
}

Coordinator::Statistics CoordinatorState::statistics() const {
  const Executor::Counts counts = executor_.counts();
  const std::lock_guard lock(bell_->mutex);
  return {.cycles = controller_statistics_.cycles,
          .talks = controller_statistics_.talks,
          .hits = controller_statistics_.hits,
          .misses = controller_statistics_.misses,
          .evictions = controller_statistics_.evictions,
          .invalidations = controller_statistics_.invalidations,
          .batches = counts.batches,
          .tensors = counts.tensors,
          .fused_bytes = counts.fused_bytes,
          .batches_without_copy = counts.without_copy,
          .control_seconds = std::chrono::duration<double>(control_time_).count()};
}

void CoordinatorState::run() {
  for (;;) {
    {
      Lock lock(bell_->mutex);
      if (!sleep_until_cycle(lock)) return;
      drain();
    }
    if (auto ran = cycle(); !ran) {
      fail_everything(ran.error());
      return;
    }
    execute();
  }
}

Clock::time_point CoordinatorState::next_cycle() const {
  const std::chrono::nanoseconds cycle_time(parameters_.cycle_time_ns);
  if (called_ || join_incoming_ || controller_.joined()) return Clock::time_point::min();
  if (!incoming_.empty()) {
    return bell_->hurried ? Clock::time_point::min() : first_incoming_ + cycle_time;
  }
  if (!controller_.pending()) return Clock::time_point::max();
  const std::chrono::nanoseconds doubled =
      cycle_time * (1 << std::min(quiet_cycles_, kDoublingsMax));
  return last_cycle_ + std::min<std::chrono::nanoseconds>(
                           doubled, std::max<std::chrono::nanoseconds>(cycle_time, kPauseMax));
}

bool CoordinatorState::sleep_until_cycle(Lock& lock) {
  for (;;) {
    if (stopping_) return false;
    const Clock::time_point when = next_cycle();
    if (when <= Clock::now()) return true;
    if (when == Clock::time_point::max()) {
      bell_->rung.wait(lock);
    } else {
      bell_->rung.wait_until(lock, when);
    }
  }
}

/// Hands the submissions to the controller. Under the mutex.
void CoordinatorState::drain() {
  const Clock::time_point now = Clock::now();
  for (std::vector<SharedSubmission>& group : incoming_) {
    std::vector<SharedRequest> requests;
    for (const SharedSubmission& task : group) {
      task->drained = now;
      requests.push_back(task->request);
    }
    controller_.add(std::move(requests), now);
  }
  incoming_.clear();
  if (join_incoming_) controller_.join();
  if (wanted_) controller_.propose_parameters(*wanted_);
  wanted_.reset();
  join_incoming_ = called_ = bell_->hurried = false;
}

Result<void> CoordinatorState::cycle() {
  const Clock::time_point start = Clock::now();
  auto ran = run_cycle(controller_, network_, start);
  if (!ran) return ran;
  for (const std::string& stall : controller_.take_stalls()) log(LogLevel::kWarning, stall);
  quiet_cycles_ = controller_.anybody_changed() ? 0 : quiet_cycles_ + 1;
  if (const auto timeline = process_->observability.timeline(); timeline) {
    const auto counted = controller_.statistics();
    const auto asked =
        static_cast<double>(std::max<std::uint64_t>(1, counted.hits + counted.misses));
    timeline->instant("cycle", start);
    timeline->counter("cache hit rate", static_cast<double>(counted.hits) / asked, start);
  }
  const std::lock_guard lock(bell_->mutex);
  last_cycle_ = Clock::now();
  control_time_ += last_cycle_ - start;
  parameters_ = controller_.parameters();
  controller_statistics_ = controller_.statistics();
  return {};
}

void CoordinatorState::execute() {
  const Parameters& parameters = controller_.parameters();
  std::vector<Batch> batches =
      coordinator::fuse(controller_.ready(), parameters.fusion_threshold_bytes);
  for (std::size_t i = 0; i < batches.size(); ++i) {
    std::vector<SharedSubmission> tasks;
    {
      const std::lock_guard lock(bell_->mutex);
      for (const coordinator::Ready& member : batches[i].members) {
        const auto task = member.own ? open_.find(member.response.request->name) : open_.end();
        tasks.push_back(task == open_.end() ? nullptr : task->second);
        if (tasks.back()) tasks.back()->running = true;
      }
    }
    executor_.start(std::move(batches[i]), std::move(tasks), parameters.size_shift,
                    i + 1 == batches.size());
  }
  const auto last = controller_.take_all_joined();
  if (!last) return;
  SharedSubmission joined;
  {
    const std::lock_guard lock(bell_->mutex);
    joined = std::exchange(join_, nullptr);
  }
  if (!joined) return;
  joined->last_joined = Rank{*last};
  joined->finish({});
}

void CoordinatorState::forget(const SubmissionState& done) {
  const std::lock_guard lock(bell_->mutex);
  open_.erase(done.call.name);
}

/// The executor ends the submissions that run already.
void CoordinatorState::fail_everything(const Error& error) {
  std::vector<SharedSubmission> failed;
  {
    const std::lock_guard lock(bell_->mutex);
    if (!broken_) broken_ = error;
    incoming_.clear();
    for (const auto& [name, task] : open_) {
      if (!task->running) failed.push_back(task);
    }
    for (const SharedSubmission& task : failed) open_.erase(task->call.name);
    if (join_) failed.push_back(std::exchange(join_, nullptr));
  }
  for (const SharedSubmission& task : failed) task->finish(error);
}

}  // namespace farandole
