// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/device.hpp"
#include "farandole/job.hpp"
#include "farandole/result.hpp"
#include "farandole/types.hpp"

namespace farandole {

class Operation;
class Transport;
struct CommunicatorState;
struct ContextState;
struct Machine;

/// An operation in flight. Dropping it does not cancel the operation.
///
/// Threads   any; wait() from several at once is fine.
/// Errors    those of the operation: kMismatch, kTimedOut, kRankFailed and kAborted with the
/// culprit.
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
  /// Calls `told` once with the outcome, an error too: at once, on this thread, if the operation
  /// has ended; else when it ends, on the thread that drives the engine then, which is one of the
  /// library's or a caller's that waits. What was given first is told first, but for what is
  /// given while the operation ends. wait() may return before `told` has been called. It must not
  /// throw, block, or call anything of the library but test(), since all operations of this process
  /// wait for it. Errors    kInvalidArgument if `told` is empty or this process was forked.
  Result<void> on_complete(std::function<void(const Result<void>&)> told);

 private:
  std::shared_ptr<Operation> operation_;
  std::shared_ptr<ContextState> context_;
};

/// What a call may say beyond its data.
struct CallOptions {
  std::string algorithm;       // empty: chosen by size and scale. Or "hierarchical:layers=4/2"
  std::string name;            // for error messages and traces
  double factor = 1.0;         // kPremultipliedSum: every input times this
  bool background = true;      // start(): false if the caller waits at once; wakes no thread
  bool deterministic = false;  // operands in one fixed order, whatever the algorithm
  int size_shift = 0;          // an algorithm that is not named is chosen as for 2^size_shift
                               // times the bytes; the same on every rank
  std::uint16_t purpose = 0;   // calls of two purposes are unlike, whatever they move
  Gate gate;                   // orders the call among a device's work; none: it begins at once
};

/// What a call without options gets; made once.
inline const CallOptions kDefaultOptions{};

/// What a collective moves. Buffers may be null where they hold no element.
///
///   collective      in                              out
///   allreduce       [count]                         [count]
///   reduce          [count]                         [count] at the root; elsewhere null, or
///                                                   memory that the call may overwrite
///   broadcast       [count] at the root             [count]
///   reducescatter   [size, count]                   [count]
///   allgather       [count]                         [size, count]
///   gather          [count]                         [size, count] at the root
///   scatter         [size, count] at the root       [count]
///   alltoall        [size, count], row d to rank d  [size, count], row s from rank s
///   barrier         none                            none
struct Arguments {
  Collective collective = Collective::kBarrier;
  const void* in = nullptr;
  void* out = nullptr;
  Count count;
  DType dtype = DType::kUInt8;
  Reduction reduction = Reduction::kSum;  // of those that reduce
  Rank root{0};                           // of those that have a root
  /// Chunks of different lengths: where the table says [size, count], chunk r has in_counts[r]
  /// or out_counts[r] elements, and they follow each other. Known on all ranks for reducescatter
  /// and allgather, at the root for gather and scatter; there the other ranks give `count`, the
  /// length of their own chunk. alltoall: what it sends to each rank, what it gets from each.
  bool by_rank = false;
  std::span<const std::size_t> in_counts, out_counts;  // read before start() returns
};

/// One message to or from another rank, or this one.
struct Message {
  enum class Kind : std::uint8_t { kSend, kReceive };
  Kind kind = Kind::kSend;
  void* data = nullptr;  // only read by a send
  Count count;
  DType dtype = DType::kUInt8;
  Rank peer{0};

  static Message send(const void* data, Count count, DType dtype, Rank dest) {
    return {Kind::kSend, const_cast<void*>(data), count, dtype, dest};
  }
  static Message receive(void* data, Count count, DType dtype, Rank source) {
    return {Kind::kReceive, data, count, dtype, source};
  }
};

/// An ordered group of ranks. Collectives on one communicator start in program order, which must
/// be the same on every rank, and each ends on no rank before all ranks have called it: also those
/// with a root synchronize. Messages between two ranks of a communicator match in program order
/// per direction, whatever the collectives around them. Operations on two communicators are
/// independent.
///
/// Threads   any; which of two threads' collectives comes first is for the caller to order.
/// Memory    Out of place, or in place: in = out; for reducescatter, and scatter at the root, `out`
///           is this rank's chunk of `in`; for allgather, and gather at the root, `in` is this
///           rank's chunk of `out`. No other overlap. Buffers stay valid and untouched until the
///           operation ended.
/// Errors    kInvalidArgument naming the argument, before anything moves; then those of Request.
///           If ranks start unlike collectives, all that start that one get kMismatch within a
///           second of the last one's call, and what follows works. Alike are collective, dtype,
///           reduction, root, algorithm with its options, count, and counts by rank as far as ranks
///           share them; addresses, names and `factor` are each rank's own affair.
///           A rank that is gone breaks the communicators that contain it, and only those.
class Communicator {
 public:
  explicit Communicator(std::shared_ptr<CommunicatorState> state) : state_(std::move(state)) {}

  Rank rank() const;
  int size() const;
  /// The members' ranks in the world, by rank here.
  const std::vector<Rank>& world_ranks() const;

  /// Starts a collective.
  Result<Request> start(const Arguments& arguments, const CallOptions& options = kDefaultOptions);
  /// The same to its end; small ones run on the calling thread.
  Result<void> run(const Arguments& arguments, const CallOptions& options = kDefaultOptions);
  Result<Request> start(Collective collective, const void* in, void* out, Count count, DType dtype,
                        Reduction reduction, Rank root,
                        const CallOptions& options = kDefaultOptions);
  Result<void> run(Collective collective, const void* in, void* out, Count count, DType dtype,
                   Reduction reduction, Rank root, const CallOptions& options = kDefaultOptions);

  /// out[i] = in_0[i] (+) ... (+) in_{p-1}[i] on every rank; [count] each.
  Result<void> allreduce(const void* in, void* out, Count count, DType dtype,
                         Reduction reduction = Reduction::kSum,
                         const CallOptions& options = kDefaultOptions);
  /// The same at the root only.
  Result<void> reduce(const void* in, void* out, Count count, DType dtype, Rank root,
                      Reduction reduction = Reduction::kSum,
                      const CallOptions& options = kDefaultOptions);
  /// Rank r gets chunk r of the reduction; in [size, count], out [count].
  Result<void> reducescatter(const void* in, void* out, Count count, DType dtype,
                             Reduction reduction = Reduction::kSum,
                             const CallOptions& options = kDefaultOptions);
  /// out[r] = in of rank r; in [count], out [size, count].
  Result<void> allgather(const void* in, void* out, Count count, DType dtype,
                         const CallOptions& options = kDefaultOptions);
  /// The same at the root only.
  Result<void> gather(const void* in, void* out, Count count, DType dtype, Rank root,
                      const CallOptions& options = kDefaultOptions);
  /// out = in[r] of the root on rank r; in [size, count] at the root, out [count].
  Result<void> scatter(const void* in, void* out, Count count, DType dtype, Rank root,
                       const CallOptions& options = kDefaultOptions);
  /// out[s] = in[r] of rank s on rank r; [size, count] each.
  Result<void> alltoall(const void* in, void* out, Count count, DType dtype,
                        const CallOptions& options = kDefaultOptions);
  /// out = in of the root; [count]. `in` is read at the root only.
  Result<void> broadcast(const void* in, void* out, Count count, DType dtype, Rank root,
                         const CallOptions& options = kDefaultOptions);
  /// Returns once every rank has called it.
  Result<void> barrier(const CallOptions& options = kDefaultOptions);

  /// Starts messages that run at once and end together. A message to this rank itself needs its
  /// counterpart in the same batch. Of `options` only the name and `background` count.
  /// Errors    kMismatch at the receiver when a message has another length or dtype than its
  ///           receive; it is dropped, the rest of the batch and all later ones go on.
  /// Blocking  in a job of more than 64 ranks, the first message between two ranks waits until
  ///           both have called.
  Result<Request> start(std::span<const Message> messages,
                        const CallOptions& options = kDefaultOptions);
  Result<void> batch(std::span<const Message> messages,
                     const CallOptions& options = kDefaultOptions);
  Result<void> send(const void* data, Count count, DType dtype, Rank dest,
                    const CallOptions& options = kDefaultOptions);
  Result<void> recv(void* data, Count count, DType dtype, Rank source,
                    const CallOptions& options = kDefaultOptions);

  /// Collective: the ranks that give one color become a communicator, ordered by key and, where
  /// keys are equal, by rank here. No color: this rank takes no part and gets none.
  Result<std::optional<Communicator>> split(std::optional<std::int64_t> color, std::int64_t key);
  /// Collective: these ranks of this communicator, in this order. Others may give any list that
  /// they are not in. Errors    kMismatch if members give different lists.
  Result<std::optional<Communicator>> group(std::span<const Rank> ranks);
  /// These ranks of this communicator, in this order, become a communicator. Only they call it,
  /// each with the same list and tag; what the other ranks do, or whether they live, does not
  /// matter. Calls with different tags may run at the same time. `timeout`: Job::start_timeout.
  /// Errors    kTimedOut naming the members that did not come; kRankFailed naming one that is gone.
  /// A
  ///           member that goes at the end of the call may be found by the first operation instead,
  ///           and one whose time is up then aborts the new communicator: kAborted.
  /// Blocking  until every member has called it.
  Result<Communicator> create_group(
      std::span<const Rank> ranks, int tag = 0,
      std::optional<std::chrono::milliseconds> timeout = std::nullopt);
  /// Collective: the ranks on this rank's host.
  Result<Communicator> node();
  /// Collective: the ranks that have this rank's position on their hosts.
  Result<Communicator> across();
  /// Which algorithm calls take that name none: the choice for the size class of `bytes`, of the
  /// larger side of a rank; there are two classes per power of two.
  std::string algorithm(Collective collective, Bytes bytes) const;
  /// Has calls of that size class take this algorithm from now on; empty: what they took before.
  /// Every rank makes the same call between the same two collectives; ranks that do not find out
  /// by kMismatch in the next one. FARANDOLE_ALGORITHM and what a call itself names go before it.
  /// Errors    kInvalidArgument naming the algorithm or option.
  Result<void> set_algorithm(Collective collective, Bytes bytes, std::string_view algorithm);

  /// Ends this communicator on all its members, for `reason`, of which 2000 bytes count. What is in
  /// flight on it, and every later call there, fails with one kAborted that names this rank and the
  /// reason; where two members abort it at once, with either. Other communicators go on. Does not
  /// wait for the other members. A second call changes nothing.
  Result<void> abort(const std::string& reason);

  /// Ends the use of this communicator on this rank, without waiting for the others. What is in
  /// flight goes on. Dropping the last Communicator does the same. Ranks that still call a
  /// collective there get kMismatch. The world cannot be freed.
  Result<void> free();

 private:
  friend class Coordinator;
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
  // With at least one operation in flight, and that callers spent blocked. Calls of up to 4 KiB
  // that end within about a microsecond count nothing.
  double active_seconds = 0;
  double wait_seconds = 0;
  std::uint64_t rejected_connections = 0;     // of other programs, or without the job's secret
  std::map<std::string, Traffic> transports;  // by name
  std::map<std::string, Calls> plans;         // by collective, algorithm and transport
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

  /// Joins the job that the caller describes. A process may be in several jobs at once, each with a
  /// context of its own. Blocks until all ranks have come.
  /// Errors    as from_environment(); kInvalidArgument naming the field of `job`.
  static Result<std::unique_ptr<Context>> from_job(const Job& job);

  /// Ranks as threads of one process, for tests. Each context is driven from its own thread.
  /// `peer_memory` false: peers reach none of a rank's memory. `transport` is a row of
  /// src/transport/registry.cpp for threads, or, with real rendezvous over loopback, one that
  /// FARANDOLE_TRANSPORT may name.
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
  /// Whether all other ranks copy from and to this rank's ordinary memory without staging, and this
  /// one from and to theirs: then a buffer that must be copied into library-owned memory before
  /// each call gains nothing by it. The same on all ranks.
  bool reaches_all_memory() const;
  /// Whether the ranks of this job, all on this host, leave no core to other threads of theirs:
  /// there are as many ranks as cores that they may use, or more, or each is bound to one. What a
  /// rank does beside computing then takes time from some rank's computing. The same on all ranks.
  bool occupies_host() const;
  /// Whether this host's ranks are so many, or bound so, that some of them must share a core: waits
  /// then give it away at once. The same on all ranks of a host.
  bool shares_cores() const;
  std::vector<MemberInfo> members() const;
  Communicator world() const;

  /// Library-owned memory that peers on the host read in place; uninitialised, aligned to 64
  /// bytes. From 2 MiB on it takes its memory at once, in huge pages, where the system gives such
  /// (Linux 6.1), else when it is touched. Outlives the context if the caller keeps it.
  Result<std::shared_ptr<std::byte>> allocate(Bytes size);
  Statistics statistics() const;

  /// Collective: plans by this description of the machine from now on, on every communicator.
  /// What set_algorithm() has set is forgotten. No other thread may be making calls.
  /// Errors    kInvalidArgument naming the field; kMismatch naming the ranks whose machine is not
  ///           rank 0's. Nothing is changed then.
  Result<void> set_machine(const Machine& machine);

  /// Records what the coordinators of this process do, docs/formats/timeline.md, until
  /// stop_timeline() or shutdown(). In `path` "{rank}" becomes the rank; without it ".rank-N" goes
  /// before the suffix. FARANDOLE_TIMELINE does the same from the first coordinator on.
  /// Errors    kInvalidArgument if one is on already, or naming a path that cannot be written.
  Result<void> start_timeline(const std::string& path);
  /// Errors    kInvalidArgument if none is on; kInternal if the file could not be finished.
  Result<void> stop_timeline();

  /// Leaves the job; the others hear that it was on purpose. Idempotent. Requests still in flight
  /// fail.
  void shutdown();

  /// State of everything in flight, one line per operation, for bug reports.
  std::string dump() const;

 private:
  friend class Coordinator;
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
