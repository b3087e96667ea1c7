// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "coordination/executor.hpp"
#include "coordination/network.hpp"
#include "coordination/submission.hpp"
#include "coordinator/controller.hpp"
#include "farandole/coordinator.hpp"
#include "frontend/context_state.hpp"

namespace farandole {

/// The thread that runs a coordinator's cycles, and what the callers' threads share with it.
///
/// When a cycle starts   A rank with new submissions starts one, at most cycle_time after the
///                       first of them and at once if a caller waits. A rank whose requests are
///                       still missing on other ranks continues with longer and longer pauses. A
///                       rank without requests sleeps. The other ranks' cycle stays open until
///                       it submits something too, since nothing can be ready everywhere before
///                       that. It takes part earlier only if they call it, to find out which
///                       ranks are missing.
class CoordinatorState {
 public:
  CoordinatorState(Context& context, std::shared_ptr<ContextState> process, Communicator control,
                   std::uint32_t control_number, Communicator data,
                   const CoordinatorOptions& options);
  ~CoordinatorState() { close(); }
  void close();

  Result<std::vector<Submission>> submit(std::vector<TensorCall> calls, std::string group);
  Result<Submission> join();
  Result<void> configure(const coordinator::Parameters& parameters);
  CoordinatorOptions options() const;
  Coordinator::Statistics statistics() const;

 private:
  using Lock = std::unique_lock<std::mutex>;
  void run();  // the thread
  /// Sleeps until it is time for a cycle; false once stopping.
  bool sleep_until_cycle(Lock& lock);
  Result<void> cycle();
  void drain();
  void execute();
  void fail_everything(const Error& error);
  void forget(const SubmissionState& done);
  Clock::time_point next_cycle() const;

  const CoordinatorOptions options_;
  const std::shared_ptr<ContextState> process_;
  const std::uint32_t number_;  // of the control communicator; what calls are addressed to
  const int rank_count_;
  std::atomic<bool> stopping_{false};
  CommunicatorNetwork network_;
  coordinator::Controller controller_;  // the thread's
  int quiet_cycles_ = 0;                // the thread's: cycles since the last change

  const std::shared_ptr<CycleBell> bell_ = std::make_shared<CycleBell>();
  // Under the bell's mutex.
  std::vector<std::vector<SharedSubmission>> incoming_;     // groups
  std::unordered_map<std::string, SharedSubmission> open_;  // by name
  SharedSubmission join_;                                   // open
  bool join_incoming_ = false, called_ = false;
  Clock::time_point first_incoming_{}, last_cycle_{};
  std::optional<coordinator::Parameters> wanted_;
  coordinator::Parameters parameters_;
  std::optional<Error> broken_;
  coordinator::Controller::Statistics controller_statistics_;
  std::chrono::nanoseconds control_time_{0};

  Executor executor_;
  std::mutex close_mutex_;
  std::thread thread_;
};

}  // namespace farandole
