// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
//
// The C interface of libfarandole.so, for plugins of frameworks and for other languages. It
// compiles as C99 and as C++, and its binary interface is stable: values of constants never change,
// functions and fields are only added. docs/guides/c.md says who should use it, examples/c has a
// program.
//
// Functions   Each is exported under its name and is also an entry of farandole_api. Link with the
//             library, or open it at run time and call farandole_get_api().
// Structs     The caller sets struct_size to sizeof of the struct that it was compiled with, and
//             every field that it does not use to zero.
// Errors      A function that returns farandole_status checks all arguments first and names the
//             wrong one. After a failure, farandole_last_error() has the details. No C++ exception
//             leaves the library.
// Handles     Pointers to opaque structs. Each belongs to the caller until its release function;
//             using one afterwards is undefined. A null pointer or a handle of another kind is
//             refused with FARANDOLE_INVALID_ARGUMENT. If a function fails, the handle that it
//             would have made is null.
// Threads     Any thread may call any function. A handle may be released only while no other thread
//             uses it.
// Processes   farandole_init() may be called more than once, also after farandole.init() in Python
//             has joined the job, if all ranks make all these calls in the same order. Each call
//             makes a membership with its own connections and threads. A forked child belongs to no
//             job.
#ifndef FARANDOLE_FARANDOLE_H
#define FARANDOLE_FARANDOLE_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define FARANDOLE_EXPORT __attribute__((visibility("default")))
#else
#define FARANDOLE_EXPORT
#endif

#ifdef __cplusplus
extern "C" {
#endif

// The argument of farandole_get_api().
#define FARANDOLE_API_VERSION 1u

// Constants have an integer type of fixed size, since C does not fix the size of an enum.
typedef int32_t farandole_status;
enum {
  FARANDOLE_OK = 0,
  FARANDOLE_INVALID_ARGUMENT = 1,  // The caller's mistake, found before any byte moved.
  FARANDOLE_UNSUPPORTED = 2,       // This build or transport cannot.
  FARANDOLE_MISMATCH = 3,          // Ranks disagree on dtype, shape or order. Later calls work.
  FARANDOLE_TIMED_OUT = 4,         // A deadline passed. The communicator is broken.
  FARANDOLE_RANK_FAILED = 5,       // A rank is gone. The communicator is broken.
  FARANDOLE_INTERNAL = 6,          // A bug of the library, or no memory left.
  FARANDOLE_ABORTED = 7            // A member ended the communicator on purpose. Others go on.
};

typedef int32_t farandole_dtype;
enum {
  FARANDOLE_BOOL = 0,
  FARANDOLE_INT8 = 1,
  FARANDOLE_INT16 = 2,
  FARANDOLE_INT32 = 3,
  FARANDOLE_INT64 = 4,
  FARANDOLE_UINT8 = 5,
  FARANDOLE_UINT16 = 6,
  FARANDOLE_UINT32 = 7,
  FARANDOLE_UINT64 = 8,
  FARANDOLE_FLOAT16 = 9,
  FARANDOLE_BFLOAT16 = 10,
  FARANDOLE_FLOAT32 = 11,
  FARANDOLE_FLOAT64 = 12,
  FARANDOLE_COMPLEX64 = 13,
  FARANDOLE_COMPLEX128 = 14,
  FARANDOLE_FLOAT8_E4M3 = 15,  // finite values only; moved, never reduced
  FARANDOLE_FLOAT8_E5M2 = 16   // moved, never reduced
};

typedef int32_t farandole_reduction;
enum {
  FARANDOLE_SUM = 0,
  FARANDOLE_PRODUCT = 1,
  FARANDOLE_MIN = 2,
  FARANDOLE_MAX = 3,
  FARANDOLE_AVERAGE = 4,  // integers: the exact sum is divided, and rounded toward zero
  FARANDOLE_LOGICAL_AND = 5,
  FARANDOLE_LOGICAL_OR = 6,
  FARANDOLE_LOGICAL_XOR = 7,
  FARANDOLE_BITWISE_AND = 8,
  FARANDOLE_BITWISE_OR = 9,
  FARANDOLE_BITWISE_XOR = 10,
  FARANDOLE_PREMULTIPLIED_SUM = 11  // every input times farandole_arguments.factor, then the sum
};

typedef int32_t farandole_collective;
enum {
  FARANDOLE_ALLREDUCE = 0,
  FARANDOLE_REDUCE = 1,
  FARANDOLE_BROADCAST = 2,
  FARANDOLE_REDUCESCATTER = 3,
  FARANDOLE_ALLGATHER = 4,
  FARANDOLE_GATHER = 5,
  FARANDOLE_SCATTER = 6,
  FARANDOLE_ALLTOALL = 7,
  FARANDOLE_BARRIER = 8
};

typedef int32_t farandole_message_kind;
enum { FARANDOLE_SEND = 0, FARANDOLE_RECEIVE = 1 };

// One process's membership in a job.
typedef struct farandole_context farandole_context;
// An ordered group of ranks.
typedef struct farandole_communicator farandole_communicator;
// An operation in flight.
typedef struct farandole_request farandole_request;
// Memory of the library that the other ranks of the host can read in place.
typedef struct farandole_memory farandole_memory;

// The last failure of the calling thread. The library fills in all fields.
typedef struct farandole_error {
  size_t struct_size;
  farandole_status status;
  int32_t failed_rank;      // FARANDOLE_RANK_FAILED: world rank of the process that is gone;
                            // FARANDOLE_ABORTED: of the one that ended the communicator; else -1
  int32_t failed_pid;       // of that rank, 0 if not known
  int32_t reserved;         // 0
  const char* failed_host;  // of that rank, "" if not known
  const char* operation;    // what was in flight, "" if nothing was
  const char* message;      // a whole sentence; "" while nothing has failed
} farandole_error;

// Where this process stands in its job. The library fills in the fields after struct_size.
typedef struct farandole_ranks {
  size_t struct_size;
  int32_t rank, size;
  int32_t local_rank, local_size;  // among the ranks of this host
  int32_t cross_rank, cross_size;  // position of this host among the hosts, number of hosts
} farandole_ranks;

// What a collective moves. Buffers may be null where they hold no element.
//
//   collective      in                              out
//   allreduce       [count]                         [count]
//   reduce          [count]                         [count] at the root; elsewhere null, or
//                                                   memory that the call may overwrite
//   broadcast       [count] at the root             [count]
//   reducescatter   [size, count]                   [count]
//   allgather       [count]                         [size, count]
//   gather          [count]                         [size, count] at the root
//   scatter         [size, count] at the root       [count]
//   alltoall        [size, count], row d to rank d  [size, count], row s from rank s
//   barrier         none                            none
typedef struct farandole_arguments {
  size_t struct_size;
  farandole_collective collective;
  farandole_dtype dtype;
  farandole_reduction reduction;  // for collectives that reduce
  int32_t root;                   // for collectives that have a root
  const void* in;
  void* out;
  size_t count;   // elements
  double factor;  // for FARANDOLE_PREMULTIPLIED_SUM; it has no default
  // by_rank = 1: chunks of different lengths. Where the table says [size, count], chunk r has
  // in_counts[r] or out_counts[r] elements, and the chunks follow each other. A list has one entry
  // per rank of the communicator. reducescatter and allgather need it on all ranks. gather and
  // scatter need it at the root; the other ranks give `count`, the length of their own chunk.
  // alltoall: in_counts is what this rank sends to each rank, out_counts what it receives from
  // each. The lists are read before farandole_start() returns.
  const size_t* in_counts;
  size_t in_counts_length;
  const size_t* out_counts;
  size_t out_counts_length;
  int32_t by_rank;   // 0 or 1
  int32_t reserved;  // 0
} farandole_arguments;

// One message to or from a rank, which may be this one. All messages of a list have the same
// struct_size.
typedef struct farandole_message {
  size_t struct_size;
  void* data;  // only read by a send
  size_t count;
  farandole_message_kind kind;
  farandole_dtype dtype;
  int32_t peer;      // rank in the communicator
  int32_t reserved;  // 0
} farandole_message;

// Options of a call.
typedef struct farandole_options {
  size_t struct_size;
  const char* algorithm;  // null: chosen by size and scale. Or "hierarchical:layers=4/2"
  const char* name;       // null: none. For error messages and traces
  void* stream;           // reserved for buffers in device memory: null
  int32_t caller_waits;   // 1: the caller of farandole_start waits at once, so no thread is woken
  int32_t deterministic;  // 1: reduces operands in one fixed order, whatever the algorithm
  int32_t size_shift;     // -16 to 16: the algorithm is chosen as if the call moved 2^size_shift
                          // times the bytes; the same on every rank
  int32_t reserved;       // 0
} farandole_options;

// Who can read and change the contents of a store.
typedef int32_t farandole_reach;
enum {
  FARANDOLE_REACH_SHARED = 0,  // others too, or unknown
  FARANDOLE_REACH_USER = 1,    // processes of this user
  FARANDOLE_REACH_PROCESS = 2  // threads of this process
};

// A key-value store of the caller, in which the ranks of a job exchange short values before they
// are connected. The library calls the functions in the thread that called
// farandole_init_from_job(), and never after that call has returned. It passes `data` to each. They
// must return in bounded time. They return FARANDOLE_OK, or the status that
// farandole_init_from_job() is to return. Keys end with a zero byte; values are any bytes.
typedef struct farandole_store {
  size_t struct_size;
  void* data;
  farandole_status (*set)(void* data, const char* key, const void* value, size_t length);
  // Waits until the value is there and hands it over by one call put(target, value, length), which
  // copies it. Returns FARANDOLE_TIMED_OUT if there is no value within timeout_ms.
  farandole_status (*get)(void* data, const char* key, int32_t timeout_ms, void* target,
                          void (*put)(void* target, const void* value, size_t length));
  // Adds `amount` to the number under `key`, at first 0, and sets *sum to the result. get() returns
  // the number's decimal digits.
  farandole_status (*add)(void* data, const char* key, int64_t amount, int64_t* sum);
  const char* name;       // for messages, "the files in /scratch/job"; null: "the caller's store"
  farandole_reach reach;  // see trust_store: a secret goes only where others cannot read it
  int32_t reserved;       // 0
} farandole_store;

// This process's place in a job, and how it finds the other ranks: rank 0 puts its addresses into
// the store; without a store the others look for it at `address` and `port`. A field that is null
// or zero is set from the setting of the same name, or by the system. The library keeps no pointer
// from the struct.
typedef struct farandole_job {
  size_t struct_size;
  int32_t rank, size;
  int32_t local_rank, local_size;  // hints. local_size = size: all ranks are on this host; without
                                   // `address` it then listens on loopback only
  const farandole_store* store;
  const char* prefix;     // of the keys in the store; a new one for each start; null: "farandole"
  const char* id;         // the job's name, unique on a host; null: from prefix, or address, port
  const char* address;    // of rank 0, host or IP; with a store: where others reach it
  const char* interface;  // network interface or address for sockets of this process; null: any
  const char* host;       // this host's name, for messages
  const char* host_id;    // equal on two ranks exactly if they can share memory
  const void* secret;     // each rank proves that it knows it; null: rank 0 makes one and stores it
  size_t secret_length;   // if others cannot read the store; else FARANDOLE_SECRET and so on
  int32_t port;           // where rank 0 listens; 0 with a store: any free one
  int32_t trust_store;    // 1: only the ranks of this job read the store, whatever its reach
  int32_t timeout_ms;     // 0: FARANDOLE_TIMEOUT. A peer that is silent for longer has failed
  int32_t start_timeout_ms;  // 0: FARANDOLE_START_TIMEOUT
} farandole_job;

// "0.1.0".
FARANDOLE_EXPORT const char* farandole_version(void);
// The error of the last call in this thread that failed. Calls that succeed do not change it. It
// stays valid until the next failure in this thread, or the end of the thread.
FARANDOLE_EXPORT const farandole_error* farandole_last_error(void);

// Joins the job that the environment describes (farandole run, torchrun, mpirun, srun). If it
// describes none, the job has one rank. Blocks until all ranks have come.
FARANDOLE_EXPORT farandole_status farandole_init(farandole_context** context);
// Joins the job that the caller describes. A process may be in several jobs at once, with a context
// for each. Blocks until all ranks have come.
FARANDOLE_EXPORT farandole_status farandole_init_from_job(const farandole_job* job,
                                                          farandole_context** context);
// Leaves the job and releases the handle. Null: does nothing. The other ranks are told that this
// rank left on purpose; to them, a process that ends without this call has died. Requests still in
// flight fail, and so do later calls on communicators of this context.
FARANDOLE_EXPORT farandole_status farandole_finalize(farandole_context* context);
FARANDOLE_EXPORT farandole_status farandole_get_ranks(const farandole_context* context,
                                                      farandole_ranks* ranks);
// Allocates memory at *data, aligned to 64 bytes and not initialised. It may be released after the
// context. Other ranks of the host read buffers in it in place, so such buffers are not copied
// first.
FARANDOLE_EXPORT farandole_status farandole_allocate(farandole_context* context, size_t bytes,
                                                     farandole_memory** memory, void** data);
// Null: does nothing. No operation may be using the memory.
FARANDOLE_EXPORT farandole_status farandole_memory_release(farandole_memory* memory);

// The communicator of all ranks.
FARANDOLE_EXPORT farandole_status farandole_world(farandole_context* context,
                                                  farandole_communicator** world);
// Collective: ranks that give the same color form a communicator, ordered by key, then by rank in
// the parent. color = null: this rank is in none, and *made is null.
FARANDOLE_EXPORT farandole_status farandole_split(farandole_communicator* parent,
                                                  const int64_t* color, int64_t key,
                                                  farandole_communicator** made);
// Collective: makes a communicator of these ranks of the parent, in this order. Ranks that are not
// in it give any list without themselves; there *made is null.
// Errors  FARANDOLE_MISMATCH if members give different lists.
FARANDOLE_EXPORT farandole_status farandole_group(farandole_communicator* parent,
                                                  const int32_t* ranks, size_t rank_count,
                                                  farandole_communicator** made);
// As farandole_group(), but only these ranks call it, each with the same list and tag. The other
// ranks take no part, and may even be dead. Calls with different tags may run at the same time.
// timeout_ms = 0: the job's start timeout. Blocks until every member has called it.
// Errors  FARANDOLE_TIMED_OUT naming the members that did not come; FARANDOLE_RANK_FAILED naming
//         one that is gone. If a member times out just as the call succeeds on the others, their
//         operations on the new communicator fail with FARANDOLE_ABORTED.
FARANDOLE_EXPORT farandole_status farandole_create_group(farandole_communicator* parent,
                                                         const int32_t* ranks, size_t rank_count,
                                                         int32_t tag, int32_t timeout_ms,
                                                         farandole_communicator** made);
// Collective: the ranks of the parent on this rank's host.
FARANDOLE_EXPORT farandole_status farandole_node(farandole_communicator* parent,
                                                 farandole_communicator** made);
// Collective: the ranks of the parent that have this rank's position on their hosts.
FARANDOLE_EXPORT farandole_status farandole_across(farandole_communicator* parent,
                                                   farandole_communicator** made);
// This process's rank and the number of ranks. Either pointer may be null.
FARANDOLE_EXPORT farandole_status farandole_communicator_rank(
    const farandole_communicator* communicator, int32_t* rank, int32_t* size);
// The world rank of each member, in the order of their ranks here. `length` must be the size of the
// communicator.
FARANDOLE_EXPORT farandole_status farandole_world_ranks(const farandole_communicator* communicator,
                                                        int32_t* world_ranks, size_t length);
// Ends the communicator on all its members. `reason` may be null; its first 2000 bytes count.
// Operations in flight on it and all later calls on it fail with FARANDOLE_ABORTED, and the error
// names this rank and the reason. Other communicators go on. Does not wait for the other members. A
// second call changes nothing.
FARANDOLE_EXPORT farandole_status farandole_abort_communicator(farandole_communicator* communicator,
                                                               const char* reason);
// Ends this rank's use of the communicator, without waiting for the others. Null: does nothing.
// Operations in flight go on. Of the world only the handle is released.
FARANDOLE_EXPORT farandole_status
farandole_communicator_release(farandole_communicator* communicator);

// Runs a collective to its end, or starts it. `options` may be null. All ranks of a communicator
// call the same collectives in the same order. Collectives with a root synchronize all ranks too.
//
// Memory  Out of place, or in place: in = out; for reducescatter, and scatter at the root, `out` is
//         this rank's chunk of `in`; for allgather, and gather at the root, `in` is this rank's
//         chunk of `out`. No other overlap. Buffers stay valid and untouched until the operation
//         has ended.
// Errors  FARANDOLE_INVALID_ARGUMENT before anything moves; then those of farandole_wait().
FARANDOLE_EXPORT farandole_status farandole_run(farandole_communicator* communicator,
                                                const farandole_arguments* arguments,
                                                const farandole_options* options);
FARANDOLE_EXPORT farandole_status farandole_start(farandole_communicator* communicator,
                                                  const farandole_arguments* arguments,
                                                  const farandole_options* options,
                                                  farandole_request** request);
// Runs, or starts, messages that travel at the same time and end together. Messages between two
// ranks match in the order of the calls, separately for each direction. A message to this rank
// itself needs its counterpart in the same list. Of `options` only `name` and `caller_waits` count.
//
// Errors  FARANDOLE_MISMATCH at the receiver when a message has another length or dtype than its
//         receive; that message is dropped, the others and all later ones go on.
FARANDOLE_EXPORT farandole_status farandole_run_messages(farandole_communicator* communicator,
                                                         const farandole_message* messages,
                                                         size_t message_count,
                                                         const farandole_options* options);
FARANDOLE_EXPORT farandole_status farandole_start_messages(farandole_communicator* communicator,
                                                           const farandole_message* messages,
                                                           size_t message_count,
                                                           const farandole_options* options,
                                                           farandole_request** request);

// Blocks until the operation has ended. Its buffers are the caller's again afterwards.
// Errors  those of the operation: FARANDOLE_MISMATCH, FARANDOLE_TIMED_OUT, FARANDOLE_RANK_FAILED,
//         FARANDOLE_ABORTED.
FARANDOLE_EXPORT farandole_status farandole_wait(farandole_request* request);
// Waits for at most timeout_ms, which is not negative; *done is 0 if the operation still runs then.
FARANDOLE_EXPORT farandole_status farandole_wait_for(farandole_request* request, int32_t timeout_ms,
                                                     int32_t* done);
// *done is 1 once the operation has ended. Does not block. Errors: as farandole_wait().
FARANDOLE_EXPORT farandole_status farandole_test(farandole_request* request, int32_t* done);
// Fails all operations of the request's context, those in flight, this one included, and later
// ones, with FARANDOLE_INTERNAL and the reason `why`, which may be null.
FARANDOLE_EXPORT farandole_status farandole_abort(farandole_request* request, const char* why);
// Null: does nothing. Does not cancel the operation.
FARANDOLE_EXPORT farandole_status farandole_request_release(farandole_request* request);

// Called when an operation has ended. `error` is null if `status` is FARANDOLE_OK; it is valid only
// during the call. farandole_last_error() does not change.
typedef void farandole_completion(void* data, farandole_status status,
                                  const farandole_error* error);
// Calls `completion` once with `data`. If the operation has ended, the call is made at once in this
// thread; else when it ends, in a thread of the library or of a caller that waits. Functions are
// called in the order given, except those given while the operation ends. farandole_wait() may
// return before the call, and the request may be released before it. `completion` must not throw,
// block, or call any function of the library but farandole_test(), since all operations of the
// context wait for it.
FARANDOLE_EXPORT farandole_status farandole_on_complete(farandole_request* request,
                                                        farandole_completion* completion,
                                                        void* data);

// Table of all functions, for callers that open the library at run time. An entry exists if it ends
// within struct_size and is not null.
typedef struct farandole_api {
  size_t struct_size;
  uint32_t version;
  uint32_t reserved;
  const char* (*library_version)(void);
  const farandole_error* (*last_error)(void);
  farandole_status (*init)(farandole_context** context);
  farandole_status (*finalize)(farandole_context* context);
  farandole_status (*get_ranks)(const farandole_context* context, farandole_ranks* ranks);
  farandole_status (*allocate)(farandole_context* context, size_t bytes, farandole_memory** memory,
                               void** data);
  farandole_status (*memory_release)(farandole_memory* memory);
  farandole_status (*world)(farandole_context* context, farandole_communicator** world);
  farandole_status (*split)(farandole_communicator* parent, const int64_t* color, int64_t key,
                            farandole_communicator** made);
  farandole_status (*group)(farandole_communicator* parent, const int32_t* ranks, size_t rank_count,
                            farandole_communicator** made);
  farandole_status (*node)(farandole_communicator* parent, farandole_communicator** made);
  farandole_status (*across)(farandole_communicator* parent, farandole_communicator** made);
  farandole_status (*communicator_rank)(const farandole_communicator* communicator, int32_t* rank,
                                        int32_t* size);
  farandole_status (*world_ranks)(const farandole_communicator* communicator, int32_t* world_ranks,
                                  size_t length);
  farandole_status (*communicator_release)(farandole_communicator* communicator);
  farandole_status (*run)(farandole_communicator* communicator,
                          const farandole_arguments* arguments, const farandole_options* options);
  farandole_status (*start)(farandole_communicator* communicator,
                            const farandole_arguments* arguments, const farandole_options* options,
                            farandole_request** request);
  farandole_status (*run_messages)(farandole_communicator* communicator,
                                   const farandole_message* messages, size_t message_count,
                                   const farandole_options* options);
  farandole_status (*start_messages)(farandole_communicator* communicator,
                                     const farandole_message* messages, size_t message_count,
                                     const farandole_options* options, farandole_request** request);
  farandole_status (*wait)(farandole_request* request);
  farandole_status (*wait_for)(farandole_request* request, int32_t timeout_ms, int32_t* done);
  farandole_status (*test)(farandole_request* request, int32_t* done);
  farandole_status (*abort)(farandole_request* request, const char* why);
  farandole_status (*request_release)(farandole_request* request);
  // Null in the first libraries of this version.
  farandole_status (*on_complete)(farandole_request* request, farandole_completion* completion,
                                  void* data);
  // Added later: compare struct_size.
  farandole_status (*abort_communicator)(farandole_communicator* communicator, const char* reason);
  farandole_status (*create_group)(farandole_communicator* parent, const int32_t* ranks,
                                   size_t rank_count, int32_t tag, int32_t timeout_ms,
                                   farandole_communicator** made);
  farandole_status (*init_from_job)(const farandole_job* job, farandole_context** context);
} farandole_api;

// The table of this version, valid as long as the library is loaded. Null for a version that this
// library does not have; then farandole_last_error() says which one it has.
FARANDOLE_EXPORT const farandole_api* farandole_get_api(uint32_t version);

#ifdef __cplusplus
}
#endif

#endif  // FARANDOLE_FARANDOLE_H
