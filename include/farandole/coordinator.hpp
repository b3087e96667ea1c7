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

/// The default of each option is that of the environment variable named beside it.
struct CoordinatorOptions {
  std::chrono::nanoseconds cycle_time{std::chrono::milliseconds(1)};  // FARANDOLE_CYCLE_TIME
  Bytes fusion_threshold{std::size_t{128} << 20};                     // FARANDOLE_FUSION_THRESHOLD
  std::size_t cache_capacity = 1024;                                  // FARANDOLE_CACHE_CAPACITY
  std::chrono::nanoseconds stall_warning{std::chrono::seconds(60)};   // FARANDOLE_STALL_WARNING
  std::chrono::nanoseconds stall_shutdown{0};                         // FARANDOLE_STALL_SHUTDOWN
  int size_shift = 0;  // CallOptions::size_shift of all operations
  // Most operations under way at once. 1: each ends before the next one starts, in one thread. 0: 1
  // if Context::occupies_host(), since several would only compete for cores and caches there; else
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
///   reducescatter   [n, ...]             null: [n / size, ...], one row more on ranks < n % size
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
  double prescale = 1.0;   // reductions: factor for every input, as scale() in reduce/reduce.hpp
  double postscale = 1.0;  // and for the result; an average applies it together with the division
  bool leaves_out_joined = false;    // an average is over the ranks that have not joined
  std::vector<std::int64_t> splits;  // alltoall: how many rows go to each rank,
                                     // in order; empty: equal parts
  const void* in = nullptr;
  void* out = nullptr;
};

/// A tensor that was submitted. Dropping it cancels nothing.
///
/// Threads   any; wait() from several at once is fine.
/// Errors    kMismatch if ranks asked for different things, naming both; kTimedOut naming the ranks
///           that have not submitted it within stall_shutdown; those of the operation.
class Submission {
 public:
  explicit Submission(std::shared_ptr<SubmissionState> state) : state_(std::move(state)) {}
  /// Blocks until it is done. Its buffers are the caller's again afterwards.
  Result<void> wait();
  /// Waits for at most `timeout`; false if it is not done then.
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

/// Makes every rank run the same operations in the same order, in whatever order each rank submits
/// them. Sources: [Sergeev18], [Romero22]; docs/design/0007-coordinator.md.
///
/// Threads   any. It has a thread that runs the cycles and, unless operations_max is 1, another one
///           that ends operations.
/// Order     Operations run in an order that all ranks share; groups stay together.
/// Memory    Tensors stay valid and untouched until their submission is done.
/// Errors    kInvalidArgument naming the tensor and the argument, before anything is sent. If a
///           rank is gone, all submissions, present and later ones, fail with kRankFailed.
/// Blocking  submit() and join() do not block. close() waits for operations that already run.
class Coordinator {
 public:
  /// Collective over `communicator`, which may be freed afterwards.
  static Result<std::unique_ptr<Coordinator>> create(Context& context, Communicator communicator,
                                                     const CoordinatorOptions& options);
  ~Coordinator();  // calls close()
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  /// Submits tensors. With a `group`, a name that is the same on every rank, none of them runs
  /// before all of them are ready on every rank.
  Result<std::vector<Submission>> submit(std::vector<TensorCall> calls, std::string group = {});
  /// Says that this rank has no more data. Until all ranks have joined, it takes part in every
  /// operation with the neutral element. Averages divide by the number of all ranks, unless the
  /// call sets leaves_out_joined.
  Result<Submission> join();

  /// Ends the threads. Submissions that other ranks have not made yet fail here, and on the other
  /// ranks too, since this rank will not take part. Idempotent.
  void close();

  /// Takes effect on every rank with one of the next cycles. Only calls on rank 0 count.
  /// Errors    kInvalidArgument naming the argument; then nothing has changed.
  Result<void> configure(std::chrono::nanoseconds cycle_time, Bytes fusion_threshold,
                         int size_shift);
  /// The options in force on this rank now.
  CoordinatorOptions options() const;

  struct Statistics {
    std::uint64_t cycles = 0, talks = 0;  // talks: cycles that the cache alone could not decide
    std::uint64_t hits = 0, misses = 0, evictions = 0, invalidations = 0;
    std::uint64_t batches = 0, tensors = 0, fused_bytes = 0;
    std::uint64_t batches_without_copy = 0;  // among those of more than one tensor
    double control_seconds = 0;              // spent in cycles, including waits for other ranks
  };
  Statistics statistics() const;

 private:
  explicit Coordinator(std::shared_ptr<CoordinatorState> state);
  std::shared_ptr<CoordinatorState> state_;
};

}  // namespace farandole
