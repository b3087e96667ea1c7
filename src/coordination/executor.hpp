// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "coordination/flight.hpp"
#include "coordinator/fusion.hpp"
#include "farandole/coordinator.hpp"
#include "frontend/context_state.hpp"

namespace farandole {

/// Runs what the controllers agreed on.
///
/// Threads   start() from the cycle thread; the executor's own thread ends operations in order.
///           With a `flights_max` of 1 that thread does not exist, and start() ends them.
/// Order     Operations start in the order of start(), and several run at once.
/// Memory    Batches of several tensors are copied into library-owned memory, unless they already
///           lie in place one after the other. Buffers are kept for the next batch.
/// Blocking  start() while `flights_max` batches are in flight; for allgather and alltoall until
///           the ranks have exchanged their sizes, for adasum until the sum is done.
class Executor {
 public:
  /// `done` is called for each submission of this rank just before its waiters wake.
  Executor(Context& context, std::shared_ptr<ContextState> process, Communicator communicator,
           std::size_t flights_max, std::function<void(SubmissionState&)> done);
  /// Waits for batches in flight.
  ~Executor();

  /// `last`: no other batch follows at once. A small one then ends before this returns, which saves
  /// the handover to the other thread. `size_shift`: of CallOptions.
  void start(coordinator::Batch batch, std::vector<SharedSubmission> tasks, int size_shift,
             bool last);

  /// Waits until no batch is in flight.
  void drain();

  struct Counts {
    std::uint64_t batches = 0, tensors = 0, fused_bytes = 0, without_copy = 0;
  };
  Counts counts() const;

 private:
  Result<void> launch(Flight& flight);
  Result<void> launch_allreduce(Flight& flight);
  Result<void> launch_adasum(Flight& flight);
  Result<void> launch_broadcast(Flight& flight);
  Result<void> launch_reducescatter(Flight& flight);
  Result<void> launch_allgather(Flight& flight);
  Result<void> launch_alltoall(Flight& flight);
  Result<void> run(Flight& flight, Arguments arguments);
  Result<void> pack(Flight& flight);
  Result<void> pack_into_buffer(Flight& flight);
  Result<void> make_result(Flight& flight, std::vector<std::int64_t> shape);
  Result<void> take_buffer(Flight& flight, Bytes size);
  void give_back(Flight& flight);
  void finish(Flight& flight, Result<void> outcome);
  void end_flights();  // the thread

  void record(const Flight& flight, Clock::time_point ended, Clock::time_point copied);

  Context& context_;
  const std::shared_ptr<ContextState> process_;
  Communicator communicator_;
  const std::size_t flights_max_;
  const std::function<void(SubmissionState&)> done_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Flight> flights_;  // the first is being ended
  bool stopping_ = false;
  Counts counts_;
  std::vector<std::pair<std::size_t, std::shared_ptr<std::byte>>> spares_;  // bytes, buffer
  std::thread thread_;
};

}  // namespace farandole
