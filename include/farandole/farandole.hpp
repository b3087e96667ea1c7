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

class DeviceRun;
class Operation;
class Transport;
struct CommunicatorState;
struct ContextState;
struct Machine;

/// An operation in flight. Dropping it does not cancel the operation.
///
/// Threads   any; wait() from several at once is fine.
/// Errors    those of the operation: kMismatch, kTimedOut, and kRankFailed and kAborted with the
///           culprit.
class Request {
 public:
  Request(std::shared_ptr<Operation> operation, std::shared_ptr<ContextState> context)
      : operation_(std::move(operation)), context_(std::move(context)) {}
  /// A call on a device's memory.
  explicit Request(std::shared_ptr<DeviceRun> run);
  /// Blocks until the operation has ended. Its buffers are the caller's again afterwards.
  Result<void> wait();
  /// What is enqueued on `stream` from now on comes after the operation. Blocks only for memory of
  /// the host, for which it is wait(). An error that is not known yet raises on the next call.
  Result<void> order(void* stream);
  /// Waits for at most `timeout`; false if the operation still runs then.
  Result<bool> wait_for(std::chrono::milliseconds timeout);
  /// Fails all operations of this context, those in flight, this one included, and later ones.
  void abort(const std::string& why);
  /// True once the operation has ended; the error if it failed. Does not block.
  Result<bool> test();
  /// Calls `told` once with the outcome, which may be an error. If the operation has ended, the
  /// call is made at once, on this thread; else when it ends, on the thread that drives the engine
  /// then, which is one of the library's or that of a waiting caller. Functions are called in the
  /// order given, except those given while the operation ends. wait() may return before the call.
  /// `told` must not throw, block, or call anything of the library but test(), since all operations
  /// of this context wait for it.
  ///
  /// Errors    kInvalidArgument if `told` is empty or this process was forked.
  Result<void> on_complete(std::function<void(const Result<void>&)> told);

 private:
  std::shared_ptr<Operation> operation_;
  std::shared_ptr<ContextState> context_;
  std::shared_ptr<DeviceRun> run_;  // in place of the two
};

/// Options of a call.
struct CallOptions {
  std::string algorithm;       // empty: chosen by size and scale. Or "hierarchical:layers=4/2"
  std::string name;            // for error messages and traces
  double factor = 1.0;         // kPremultipliedSum: every input times this
  bool background = true;      // start(): false if the caller waits at once, so no thread is woken
  bool deterministic = false;  // reduces operands in one fixed order, whatever the algorithm
  int size_shift = 0;          // unless `algorithm` names one, it is chosen as if the call moved
                               // 2^size_shift times the bytes; the same on every rank
  std::uint16_t purpose = 0;   // calls with different purposes never match, whatever they move
  Gate gate;                   // orders the call within a device's work; empty: it begins at once
  void* stream = nullptr;  // for buffers in a device's memory: on which they are used; null: the
                           // device's default stream
};

/// The options of calls that give none; made once.
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
  Reduction reduction = Reduction::kSum;  // for collectives that reduce
  Rank root{0};                           // for collectives that have a root
  /// True: chunks of different lengths. Where the table says [size, count], chunk r has
  /// in_counts[r] or out_counts[r] elements, and the chunks follow each other. reducescatter and
  /// allgather need the list on all ranks. gather and scatter need it at the root; the other ranks
  /// give `count`, the length of their own chunk. alltoall: in_counts is what this rank sends to
  /// each rank, out_counts what it receives from each.
  bool by_rank = false;
  std::span<const std::size_t> in_counts, out_counts;  // read before start() returns
};

/// One message to or from a rank, which may be this one.
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

/// An ordered group of ranks. Collectives on one communicator start in program order, which must be
/// the same on every rank. A collective ends on no rank before all ranks have called it, even if it
/// has a root. Messages between two ranks of a communicator match in program order, separately for
/// each direction and whatever collectives run meanwhile. Operations on different communicators are
/// independent.
///
/// Threads   any; if several threads call collectives, the caller puts their calls in order.
/// Memory    Out of place, or in place: in = out; for reducescatter, and scatter at the root, `out`
///           is this rank's chunk of `in`; for allgather, and gather at the root, `in` is this
///           rank's chunk of `out`. No other overlap. Buffers stay valid and untouched until the
///           operation has ended.
/// Errors    kInvalidArgument naming the argument, before anything moves; then those of Request. If
///           collectives at the same place in the order do not match, all ranks that start theirs
///           get kMismatch within a second of the last rank's call, and later calls work. They
///           match if collective, dtype, reduction, root, algorithm with its options, count, and
///           the counts by rank that ranks share are equal; addresses, names and `factor` may
///           differ. A rank that is gone breaks the communicators that contain it, and only those.
class Communicator {
 public:
  explicit Communicator(std::shared_ptr<CommunicatorState> state) : state_(std::move(state)) {}

  Rank rank() const;
  int size() const;
  /// The world rank of each member, in the order of their ranks here.
  const std::vector<Rank>& world_ranks() const;

  /// Starts a collective.
  Result<Request> start(const Arguments& arguments, const CallOptions& options = kDefaultOptions);
  /// Runs a collective to its end; a small one runs on the calling thread.
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

  /// Starts messages that travel at the same time and end together. A message to this rank itself
  /// needs its counterpart in the same batch. Of `options` only `name`, `background` and `gate`
  /// count.
  ///
  /// Errors    kMismatch at the receiver when a message has another length or dtype than its
  ///           receive; that message is dropped, the rest of the batch and all later ones go on.
  /// Blocking  if this rank reaches more than 64 others by one transport, the first message between
  ///           it and one of them waits until both have called.
  Result<Request> start(std::span<const Message> messages,
                        const CallOptions& options = kDefaultOptions);
  Result<void> batch(std::span<const Message> messages,
                     const CallOptions& options = kDefaultOptions);
  Result<void> send(const void* data, Count count, DType dtype, Rank dest,
                    const CallOptions& options = kDefaultOptions);
  Result<void> recv(void* data, Count count, DType dtype, Rank source,
                    const CallOptions& options = kDefaultOptions);

  /// Collective: ranks that give the same color form a communicator, ordered by key, then by rank
  /// here. No color: this rank joins none, and the result is empty.
  Result<std::optional<Communicator>> split(std::optional<std::int64_t> color, std::int64_t key);
  /// Collective: makes a communicator of these ranks of this communicator, in this order. Ranks
  /// that are not in it give any list without themselves.
  ///
  /// Errors    kMismatch if members give different lists.
  Result<std::optional<Communicator>> group(std::span<const Rank> ranks);
  /// Makes a communicator of these ranks of this communicator, in this order. Only they call it,
  /// each with the same list and tag. The other ranks take no part, and may even be dead. Calls
  /// with different tags may run at the same time. `timeout`: Job::start_timeout if not given.
  ///
  /// Errors    kTimedOut naming the members that did not come; kRankFailed naming one that is gone.
  ///           If a member dies at the end of the call, the first operation may find that instead.
  ///           If a member times out at the end of the call, it aborts the new communicator:
  ///           kAborted.
  /// Blocking  until every member has called it.
  Result<Communicator> create_group(
      std::span<const Rank> ranks, int tag = 0,
      std::optional<std::chrono::milliseconds> timeout = std::nullopt);
  /// Collective: the ranks on this rank's host.
  Result<Communicator> node();
  /// Collective: the ranks that have this rank's position on their hosts.
  Result<Communicator> across();
  /// The algorithm of calls that name none, for the size class of `bytes`: the larger of a rank's
  /// input and output. There are two size classes per power of two.
  std::string algorithm(Collective collective, Bytes bytes) const;
  /// Makes calls of that size class use this algorithm from now on; empty: the one they used
  /// before. Every rank makes the same call between the same two collectives; if ranks differ, the
  /// next collective gives kMismatch. FARANDOLE_ALGORITHM and an algorithm that a call names take
  /// precedence.
  /// Errors    kInvalidArgument naming the algorithm or option.
  Result<void> set_algorithm(Collective collective, Bytes bytes, std::string_view algorithm);

  /// Ends this communicator on all its members. The first 2000 bytes of `reason` count. Operations
  /// in flight on it and all later calls on it fail with kAborted, which names this rank and the
  /// reason; if two members abort it at once, the error names either of them. Other communicators
  /// go on. Does not wait for the other members. A second call changes nothing.
  Result<void> abort(const std::string& reason);

  /// Ends this rank's use of the communicator, without waiting for the others. Operations in flight
  /// go on. Dropping the last Communicator object does the same. Ranks that still call a collective
  /// there get kMismatch. The world cannot be freed.
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

/// What this context has done so far.
struct Statistics {
  struct Traffic {
    std::uint64_t sent_bytes = 0, sent_messages = 0, received_bytes = 0, received_messages = 0;
  };
  struct Calls {
    std::uint64_t calls = 0, bytes = 0;
  };
  std::uint64_t operations = 0;
  // The next two leave out calls of up to 4 KiB that end within about a microsecond.
  double active_seconds = 0;                  // with at least one operation in flight
  double wait_seconds = 0;                    // that callers spent blocked
  std::uint64_t rejected_connections = 0;     // of other programs, or without the job's secret
  std::map<std::string, Traffic> transports;  // by name
  std::map<std::string, Calls> plans;         // by collective, algorithm and transport
};

/// One process's membership in a job: memory, connections, threads, the world communicator.
///
/// Threads   any. The destructor calls shutdown().
class Context {
 public:
  /// Joins the job that the environment describes (farandole run, torchrun, mpirun, srun). If it
  /// describes none, the job has one rank. Blocks until all ranks have come.
  /// Errors    kInvalidArgument naming the variable; kTimedOut naming the missing ranks.
  static Result<std::unique_ptr<Context>> from_environment();

  /// Joins the job that the caller describes. A process may be in several jobs at once, with a
  /// context for each. Blocks until all ranks have come.
  /// Errors    as from_environment(); kInvalidArgument naming the field of `job`.
  static Result<std::unique_ptr<Context>> from_job(const Job& job);

  /// Makes a job whose ranks are threads of this process, for tests. Each context is driven from a
  /// thread of its own. `peer_memory` false: ranks cannot access each other's memory. `transport`
  /// is a row of src/transport/registry.cpp for threads, or one that FARANDOLE_TRANSPORT may name;
  /// with the latter the ranks meet by a real rendezvous over loopback.
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
  /// True if this rank and every other rank copy from and to each other's ordinary memory without
  /// staging. Then there is no gain in copying a buffer into library-owned memory before each call.
  /// The same on all ranks.
  bool reaches_all_memory() const;
  /// True if all ranks of this job are on this host and leave no core free for their other threads:
  /// there are at least as many ranks as cores that they may use, or each rank is bound to one
  /// core. Any other work of a rank then takes time from some rank's computing. The same on all
  /// ranks.
  bool occupies_host() const;
  /// True if some ranks of this host must share a core, because there are more ranks than cores or
  /// because of how the ranks are bound. Waits then give the core away at once. The same on all
  /// ranks of a host.
  bool shares_cores() const;
  std::vector<MemberInfo> members() const;
  Communicator world() const;

  /// Library-owned memory that peers on the host read in place; uninitialised, aligned to 64 bytes.
  /// Blocks of 2 MiB or more get huge pages at once if the system can give them (Linux 6.1); other
  /// memory is taken from the system when it is touched. Outlives the context if the caller keeps
  /// it.
  Result<std::shared_ptr<std::byte>> allocate(Bytes size);
  Statistics statistics() const;

  /// Collective: from now on plans by this description of the machine, on every communicator. What
  /// set_algorithm() has set is discarded. No other thread may be making calls.
  /// Errors    kInvalidArgument naming the field; kMismatch naming the ranks whose machine is not
  ///           rank 0's. Then nothing has changed.
  Result<void> set_machine(const Machine& machine);

  /// Records what the coordinators of this context do, as docs/formats/timeline.md describes, until
  /// stop_timeline() or shutdown(). In `path` "{rank}" is replaced by the rank; without it
  /// ".rank-N" is put before the suffix. FARANDOLE_TIMELINE does the same from the first
  /// coordinator on.
  /// Errors    kInvalidArgument if one is on already, or naming a path that cannot be written.
  Result<void> start_timeline(const std::string& path);
  /// Errors    kInvalidArgument if none is on; kInternal if the file could not be finished.
  Result<void> stop_timeline();

  /// Leaves the job; the other ranks are told that it is on purpose. Idempotent. Requests still in
  /// flight fail.
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
