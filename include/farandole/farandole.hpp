// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "farandole/result.hpp"
#include "farandole/types.hpp"

namespace farandole {

class Operation;
class Transport;
struct CommunicatorState;
struct ContextState;

/// An operation in flight. Dropping it does not cancel the operation.
///
/// Threads   any; wait() from several at once is fine.
/// Errors    those of the operation: kMismatch, kTimedOut, kRankFailed with the culprit.
class Request {
 public:
  Request(std::shared_ptr<Operation> operation, std::shared_ptr<ContextState> context)
      : operation_(std::move(operation)), context_(std::move(context)) {}
  /// Blocks until the operation ended. Its buffers are the caller's again afterwards.
  Result<void> wait();
  /// The same for at most `timeout`; false if it is still running then.
  Result<bool> wait_for(std::chrono::milliseconds timeout);
  /// Ends everything in flight in this process, this operation included, with an error.
  void abort(const std::string& why);
  /// True once it ended; the error if it failed. Does not block.
  Result<bool> test();

 private:
  std::shared_ptr<Operation> operation_;
  std::shared_ptr<ContextState> context_;
};

/// What a call may say beyond its data.
struct CallOptions {
  std::string algorithm;   // empty: chosen by size and scale
  std::string name;        // for error messages and traces
  double factor = 1.0;     // kPremultipliedSum: every input times this
  bool background = true;  // start(): false if the caller waits at once, so that no thread is woken
};

/// An ordered group of ranks. Operations on one communicator start in program order, which must
/// be the same on every rank; operations on two communicators are independent.
///
/// Threads   any.
/// Memory    `in` may equal `out`; for reducescatter `in` may hold `out` at this rank's chunk,
///           for allgather `out` may hold `in` there. No other overlap. Buffers stay valid and
///           untouched until the operation ended.
/// Errors    kInvalidArgument naming the argument, before anything moves; then those of Request.
class Communicator {
 public:
  explicit Communicator(std::shared_ptr<CommunicatorState> state) : state_(std::move(state)) {}

  Rank rank() const;
  int size() const;

  /// Starts a collective. `count` is elements per rank in the caller's terms: the tensor for
  /// allreduce and broadcast, the output for reducescatter, the input for allgather.
  Result<Request> start(Collective collective, const void* in, void* out, Count count, DType dtype,
                        Reduction reduction, Rank root, const CallOptions& options = {});
  /// The same to its end; small ones run on the calling thread.
  Result<void> run(Collective collective, const void* in, void* out, Count count, DType dtype,
                   Reduction reduction, Rank root, const CallOptions& options = {});

  /// out[i] = in_0[i] (+) ... (+) in_{p-1}[i] on every rank; [count] each.
  Result<void> allreduce(const void* in, void* out, Count count, DType dtype,
                         Reduction reduction = Reduction::kSum, const CallOptions& options = {});
  /// Rank r gets chunk r of the reduction; in [size, count], out [count].
  Result<void> reducescatter(const void* in, void* out, Count count, DType dtype,
                             Reduction reduction = Reduction::kSum,
                             const CallOptions& options = {});
  /// out[r] = in of rank r; in [count], out [size, count].
  Result<void> allgather(const void* in, void* out, Count count, DType dtype,
                         const CallOptions& options = {});
  /// out = in of the root; [count]. `in` is read at the root only.
  Result<void> broadcast(const void* in, void* out, Count count, DType dtype, Rank root,
                         const CallOptions& options = {});
  /// Returns once every rank has called it.
  Result<void> barrier(const CallOptions& options = {});

 private:
  std::shared_ptr<CommunicatorState> state_;
};

/// One process of the job, as all others know it.
struct MemberInfo {
  int rank = 0;
  int local_rank = 0;
  std::string host;
  int pid = 0;
};

/// What the library did so far, in this process.
struct Statistics {
  struct Traffic {
    std::uint64_t sent_bytes = 0, sent_messages = 0, received_bytes = 0, received_messages = 0;
  };
  struct Calls {
    std::uint64_t calls = 0, bytes = 0;
  };
  std::uint64_t operations = 0;
  double active_seconds = 0;                  // with at least one operation in flight
  double wait_seconds = 0;                    // callers spent blocked
  std::uint64_t strangers = 0;                // connections refused
  std::map<std::string, Traffic> transports;  // "shm", "tcp"
  std::map<std::string, Calls> plans;         // "allreduce ring shm"
};

/// One process's membership in a job: memory, connections, threads, the world communicator.
///
/// Threads   any. The destructor calls shutdown().
class Context {
 public:
  /// Joins the job that the environment describes (farandole run, torchrun, mpirun, srun), alone
  /// if it describes none. Blocks until all ranks have come.
  /// Errors    kInvalidArgument naming the variable; kTimedOut naming the missing ranks.
  static Result<std::unique_ptr<Context>> from_environment();

  /// Ranks as threads of one process, for tests. Each context is driven from its own thread.
  /// `peer_memory` false forces staging. `transport` is "inproc", "fault" (inproc with random
  /// delays), or, with real rendezvous over loopback, "shm" or "tcp".
  static Result<std::vector<std::unique_ptr<Context>>> inproc(int rank_count, bool peer_memory,
                                                              const std::string& transport);
  ~Context();

  Rank rank() const;
  int size() const;
  int local_rank() const;
  int local_size() const;
  int cross_rank() const;  // position of this host among the hosts
  int cross_size() const;  // number of hosts
  const std::string& started_by() const;
  std::vector<MemberInfo> members() const;
  Communicator world() const;

  /// Library-owned memory that peers on the host read in place; uninitialised, aligned to 64
  /// bytes. Outlives the context if the caller keeps it.
  Result<std::shared_ptr<std::byte>> allocate(Bytes size);
  Statistics statistics() const;

  /// Leaves the job; the others hear that it was on purpose. Idempotent. Requests still in flight
  /// fail.
  void shutdown();

  /// State of everything in flight, one line per operation, for bug reports.
  std::string dump() const;

 private:
  explicit Context(std::shared_ptr<ContextState> state);
  static Result<std::unique_ptr<Context>> join(std::shared_ptr<ContextState> state);
  static Result<std::vector<std::unique_ptr<Context>>> over_loopback(int rank_count,
                                                                     bool peer_memory,
                                                                     const std::string& transport);
  static Result<std::unique_ptr<Context>> begin(std::shared_ptr<ContextState> state,
                                                const std::vector<Transport*>& by_rank);
  std::shared_ptr<ContextState> state_;
  std::shared_ptr<CommunicatorState> world_;
};

}  // namespace farandole
