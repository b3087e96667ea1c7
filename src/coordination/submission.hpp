// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/origin.hpp"
#include "coordinator/request.hpp"
#include "farandole/coordinator.hpp"

namespace farandole {

/// Lets callers and the cycle thread wake each other. Outlives the coordinator while a caller still
/// holds a submission.
struct CycleBell {
  std::mutex mutex;
  std::condition_variable rung;
  bool hurried = false;  // a caller waits: start the next cycle at once
};

/// A tensor from submit() until it is done.
///
/// Threads   finished() and sleep_until_finished() from any; the results from any once finished;
///           the rest from the thread that works on it: the cycle thread, then the one that ends
///           operations.
struct SubmissionState {
  explicit SubmissionState(const Origin& made_in) : origin(made_in) {}

  TensorCall call;
  coordinator::SharedRequest request;  // none for a join
  std::shared_ptr<CycleBell> bell;
  const Origin origin;
  bool running = false;  // the executor has it; under the bell's mutex
  Clock::time_point submitted{}, drained{};

  Result<void> outcome;
  std::shared_ptr<std::byte> data;
  std::vector<std::int64_t> shape, rows;
  Rank last_joined{0};

  bool finished() const { return phase.load(std::memory_order_acquire) == kFinished; }
  void sleep_until_finished(std::chrono::nanoseconds timeout);
  void finish(Result<void> result);

 private:
  static constexpr std::uint32_t kOpen = 0, kSleptOn = 1, kFinished = 2;
  std::atomic<std::uint32_t> phase{kOpen};
};
using SharedSubmission = std::shared_ptr<SubmissionState>;

/// Errors    kInvalidArgument naming the tensor and the argument.
Result<void> check_tensor_call(const TensorCall& call, int rank_count);

/// What the other ranks have to know about the call.
coordinator::TensorRequest make_request(const TensorCall& call, const std::string& group,
                                        std::size_t group_size);

/// Elements of a tensor; of all dimensions but the first.
std::size_t element_count(const std::vector<std::int64_t>& shape);
std::size_t row_length(const std::vector<std::int64_t>& shape);
/// The first dimension; a tensor without dimensions is one row.
std::int64_t row_count(const std::vector<std::int64_t>& shape);

}  // namespace farandole
