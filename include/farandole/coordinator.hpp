// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "farandole/farandole.hpp"

namespace farandole {

struct SubmissionState;
class CoordinatorState;

/// Defaults are those of the environment variables in parentheses.
struct CoordinatorOptions {
  std::chrono::nanoseconds cycle_time{std::chrono::milliseconds(1)};  // FARANDOLE_CYCLE_TIME
  Bytes fusion_threshold{std::size_t{128} << 20};                     // FARANDOLE_FUSION_THRESHOLD
  std::size_t cache_capacity = 1024;                                  // FARANDOLE_CACHE_CAPACITY
  std::chrono::nanoseconds stall_warning{std::chrono::seconds(60)};   // FARANDOLE_STALL_WARNING
  std::chrono::nanoseconds stall_shutdown{0};                         // FARANDOLE_STALL_SHUTDOWN
  int size_shift = 0;  // of CallOptions, for all operations
  // Operations under way at once; 1: each ends before the next is looked at, in one thread. 0: 1 if
  // Context::occupies_host(), where several would only take cores and caches from each other, else
  // 4, so that one is packed while others travel.
  int operations_max = 0;

  /// Errors    kInvalidArgument naming the variable.
  static Result<CoordinatorOptions> from_environment();
};

/// A named tensor and what all ranks are to do with it.
///
///   collective      in                   out; null: see Submission::data()
///   allreduce       [shape]              [shape], may be `in`
///   broadcast       [shape] at the root  [shape], may be `in`
///   reducescatter   [n, ...]             null: [n / size, ...], one more on the first n % size
///   allgather       [n, ...]             null: [sum of the ranks' n, ...]
///   alltoall        [n, ...]             null: [received rows, ...]
///   barrier         none                 none
struct TensorCall {
  std::string name;  // unique among this rank's submissions that are not done
  Collective collective = Collective::kAllreduce;
  Reduction reduction = Reduction::kSum;  // kPremultipliedSum is kSum with a `prescale`
  bool adasum = false;                    // allreduce of float32 or float64 by adaptive summation
  DType dtype = DType::kFloat32;
  std::vector<std::int64_t> shape;
  Rank root{0};
  double prescale = 1.0;   // of what reduces: every input times this, as scale() in reduce.hpp
  double postscale = 1.0;  // and the result times this; of an average in one step with the division
  bool leaves_out_joined = false;    // an average divides by the ranks that have not joined
  std::vector<std::int64_t> splits;  // alltoall: rows to each rank, from the
                                     // first one on; empty: equal parts
  const void* in = nullptr;
  void* out = nullptr;
};

/// A tensor that was submitted. Dropping it cancels nothing.
///
/// Threads   any; wait() from several at once is fine.
/// Errors    kMismatch if ranks asked for different things, naming both; kTimedOut naming the ranks
///           that have not asked after stall_shutdown; those of the operation.
class Submission {
 public:
  explicit Submission(std::shared_ptr<SubmissionState> state) : state_(std::move(state)) {}
  /// Blocks until it is done. Its buffers are the caller's again afterwards.
  Result<void> wait();
  /// The same for at most `timeout`; false if it is not done then.
  Result<bool> wait_for(std::chrono::milliseconds timeout);
  /// True once it is done. Does not block.
  Result<bool> test();

  /// Once done: the result that the library allocated; null if the caller gave `out`.
  const std::shared_ptr<std::byte>& data() const;
  /// Once done: the shape of the result.
  const std::vector<std::int64_t>& shape() const;
  /// Once done: of allgather and alltoall, the rows that came from each rank.
  const std::vector<std::int64_t>& rows() const;
  DType dtype() const;
  /// Once done, of a join: the rank that joined last.
  Rank last_joined() const;

 private:
  std::shared_ptr<SubmissionState> state_;
};

/// Has every rank run the same operations in the same order, whatever the order in which they are
/// submitted. Sources: [Sergeev18], [Romero22]; docs/design/0007-coordinator.md.
///
/// Threads   any. Two of its own: one runs the cycles, one ends operations.
/// Order     Operations run in an order that all ranks share; groups stay together.
/// Memory    Tensors stay valid and untouched until their submission is done.
/// Errors    kInvalidArgument naming the tensor and the argument, before anything is sent. If a
///           rank is gone, all submissions, now and later, fail with kRankFailed.
/// Blocking  submit() and join() do not block. close() waits for what runs already.
class Coordinator {
 public:
  /// Collective over `communicator`, which may be freed afterwards.
  static Result<std::unique_ptr<Coordinator>> create(Context& context, Communicator communicator,
                                                     const CoordinatorOptions& options);
  ~Coordinator();  // close()
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  /// Submits tensors. With a `group`, a name that is the same on every rank, none of them runs
  /// before all are ready everywhere.
  Result<std::vector<Submission>> submit(std::vector<TensorCall> calls, std::string group = {});
  /// This rank has no more data: until all ranks have joined it takes part in everything with the
  /// neutral element. Averages divide by all ranks, unless they leave out those that have joined.
  Result<Submission> join();

  /// Ends the threads. What other ranks have not asked for yet fails, here and, since this rank
  /// will not take part, there too. Idempotent.
  void close();

  /// From one of the next cycles on, on every rank. Counts on rank 0 only.
  /// Errors    kInvalidArgument naming the argument; nothing is changed then.
  Result<void> configure(std::chrono::nanoseconds cycle_time, Bytes fusion_threshold,
                         int size_shift);
  /// What holds on this rank now.
  CoordinatorOptions options() const;

  struct Statistics {
    std::uint64_t cycles = 0, talks = 0;  // talks: cycles that the cache did not decide alone
    std::uint64_t hits = 0, misses = 0, evictions = 0, invalidations = 0;
    std::uint64_t batches = 0, tensors = 0, fused_bytes = 0;
    std::uint64_t batches_without_copy = 0;  // of those of more than one tensor
    double control_seconds = 0;              // inside cycles, waiting for other ranks included
  };
  Statistics statistics() const;

 private:
  explicit Coordinator(std::shared_ptr<CoordinatorState> state);
  std::shared_ptr<CoordinatorState> state_;
};

}  // namespace farandole
