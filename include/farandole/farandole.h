// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
//
// The C interface of libfarandole.so, for plugins of frameworks and for other languages. It is
// C99 and C++, and its binary form stays: values of constants never change, functions and fields
// are only added. docs/guides/c.md says who should use it, examples/c has a program.
//
// Functions   Each is exported under its name and is an entry of farandole_api as well; link with
//             the library, or open it at run time and call farandole_get_api().
// Structs     The caller sets struct_size to sizeof of the struct that it was compiled with, and
//             every field that it does not use to zero.
// Errors      A function that returns farandole_status tells more by farandole_last_error(). It
//             checks every argument first, and names the one that is wrong. No C++ exception
//             leaves the library.
// Handles     Pointers to opaque structs. Each belongs to the caller until its release function;
//             using one afterwards is undefined. A null pointer or a handle of another kind is
//             refused with FARANDOLE_INVALID_ARGUMENT. Where a function fails, the handle that it
//             would have made is null.
// Threads     Any thread may call any function. A handle is released while no other thread uses
//             it.
// Processes   farandole_init() may be called more than once, also where farandole.init() in Python
//             has joined the job already, if all ranks do all of it in the same order. Each is a
//             membership with connections and threads of its own. A child that is forked belongs
//             to no job.
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

// What farandole_get_api() takes.
#define FARANDOLE_API_VERSION 1u

// Constants are of a type with a fixed size, which C does not promise of an enum.
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
  FARANDOLE_AVERAGE = 4,  // of integers: of the exact sum, rounded toward zero
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
// Memory of the library that the other ranks of the host read in place.
typedef struct farandole_memory farandole_memory;

// The last failure of the calling thread. The library fills it in.
typedef struct farandole_error {
  size_t struct_size;
  farandole_status status;
  int32_t failed_rank;  // in the world: which is gone, of FARANDOLE_RANK_FAILED; which ended the
                        // communicator, of FARANDOLE_ABORTED; else -1
  int32_t failed_pid;   // of that rank, 0 if not known
  int32_t reserved;     // 0
  const char* failed_host;  // of that rank, "" if not known
  const char* operation;    // what was in flight, "" if nothing was
  const char* message;      // a whole sentence; "" while nothing has failed
} farandole_error;

// Where this process stands in its job. The library fills in the fields after struct_size.
typedef struct farandole_ranks {
  size_t struct_size;
  int32_t rank, size;
  int32_t local_rank, local_size;  // on its host
  int32_t cross_rank, cross_size;  // of its host among the hosts
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
  farandole_reduction reduction;  // of those that reduce
  int32_t root;                   // of those that have a root
  const void* in;
  void* out;
  size_t count;   // elements
  double factor;  // of FARANDOLE_PREMULTIPLIED_SUM; it has no default
  // Chunks of different lengths, with by_rank = 1: where the table says [size, count], chunk r has
  // in_counts[r] or out_counts[r] elements, and they follow each other. The lengths of the lists
  // are the size of the communicator. They are known on all ranks for reducescatter and allgather,
  // at the root for gather and scatter; there the other ranks give `count`, the length of their
  // own chunk. alltoall: what it sends to each rank, what it gets from each. Read before
  // farandole_start() returns.
  const size_t* in_counts;
  size_t in_counts_length;
  const size_t* out_counts;
  size_t out_counts_length;
  int32_t by_rank;   // 0 or 1
  int32_t reserved;  // 0
} farandole_arguments;

// One message to or from another rank, or this one. In a list all have one struct_size.
typedef struct farandole_message {
  size_t struct_size;
  void* data;  // only read by a send
  size_t count;
  farandole_message_kind kind;
  farandole_dtype dtype;
  int32_t peer;      // rank in the communicator
  int32_t reserved;  // 0
} farandole_message;

// What a call may say beyond its data.
typedef struct farandole_options {
  size_t struct_size;
  const char* algorithm;  // null: chosen by size and scale. Or "hierarchical:layers=4/2"
  const char* name;       // null: none. For error messages and traces
  void* stream;           // reserved for buffers in the memory of devices: null
  int32_t caller_waits;   // 1: the caller of farandole_start waits at once; wakes no thread
  int32_t deterministic;  // 1: operands in one fixed order, whatever the algorithm
  int32_t size_shift;     // -16 to 16: an algorithm is chosen as for 2^size_shift times the bytes;
                          // the same on every rank
  int32_t reserved;       // 0
} farandole_options;

// Who can read and change what is in a store.
typedef int32_t farandole_reach;
enum {
  FARANDOLE_REACH_SHARED = 0,  // others too, or not known
  FARANDOLE_REACH_USER = 1,    // processes of this user
  FARANDOLE_REACH_PROCESS = 2  // threads of this process
};

// Where the ranks of a job leave each other short values before they are connected, kept by the
// caller. The functions run in the thread that called farandole_init_from_job(), and are not called
// after it returned. `data` is that of the store. They return in bounded time, and a status:
// FARANDOLE_OK, or the one that the caller of farandole_init_from_job() is to see. Keys end with a
// zero byte; values are any bytes.
typedef struct farandole_store {
  size_t struct_size;
  void* data;
  farandole_status (*set)(void* data, const char* key, const void* value, size_t length);
  // Waits until the value is there, and hands it over by one call put(target, value, length), which
  // copies it; FARANDOLE_TIMED_OUT if it does not come in time.
  farandole_status (*get)(void* data, const char* key, int32_t timeout_ms, void* target,
                          void (*put)(void* target, const void* value, size_t length));
  // Adds to the number under `key`, 0 at first; *sum is the sum. get() gives its digits.
  farandole_status (*add)(void* data, const char* key, int64_t amount, int64_t* sum);
  const char* name;       // for messages, "the files in /scratch/job"; null: "the caller's store"
  farandole_reach reach;  // a secret is put only into a store that others cannot read
  int32_t reserved;       // 0
} farandole_store;

// Who this process is, and how it finds the other ranks of its job: rank 0 leaves its addresses in
// the store; without a store the others look for it at `address` and `port`. What is null or zero
// is found or set as from the environment: by the settings of the same name, or by the system. The
// library keeps no pointer of it.
typedef struct farandole_job {
  size_t struct_size;
  int32_t rank, size;
  int32_t local_rank, local_size;  // hints; local_size = size: all ranks are on this host, which
                                   // listens to itself only
  const farandole_store* store;
  const char* prefix;     // of the keys in the store, another one for each start; null: "farandole"
  const char* id;         // of two jobs on one host; null: from store and prefix
  const char* address;    // of rank 0, host or IP; with a store: where others reach it
  const char* interface;  // network interface or address for sockets of this process; null: any
  const char* host;       // this host's name, for messages
  const char* host_id;    // equal exactly where two ranks can share memory
  const void* secret;     // what every rank proves to know; null: rank 0 makes one and leaves it in
  size_t secret_length;   // the store if no other can read it; else FARANDOLE_SECRET and so on
  int32_t port;           // where rank 0 listens; 0 with a store: any free one
  int32_t trust_store;    // 1: nobody but the ranks of this job reads the store, whatever its reach
  int32_t timeout_ms;     // FARANDOLE_TIMEOUT: a silent peer is gone
  int32_t start_timeout_ms;  // FARANDOLE_START_TIMEOUT
} farandole_job;

// "0.1.0".
FARANDOLE_EXPORT const char* farandole_version(void);
// What the last function of this thread that failed reports. Calls that succeed leave it as it is.
// It stays valid until the next failure in this thread, or the thread's end.
FARANDOLE_EXPORT const farandole_error* farandole_last_error(void);

// Joins the job that the environment describes (farandole run, torchrun, mpirun, srun), alone if
// it describes none. Blocks until all ranks have come.
FARANDOLE_EXPORT farandole_status farandole_init(farandole_context** context);
// Joins the job that the caller describes. A process may be in several at once, each with a context
// of its own. Blocks until all ranks have come.
FARANDOLE_EXPORT farandole_status farandole_init_from_job(const farandole_job* job,
                                                          farandole_context** context);
// Leaves the job and releases the handle; null: does nothing. The other ranks hear that it was on
// purpose. Requests still in flight fail, and later calls on communicators of this context fail.
// To them a process that ends without it has died.
FARANDOLE_EXPORT farandole_status farandole_finalize(farandole_context* context);
FARANDOLE_EXPORT farandole_status farandole_get_ranks(const farandole_context* context,
                                                      farandole_ranks* ranks);
// Memory aligned to 64 bytes, not initialised, at *data. It outlives the context if it is released
// later. Buffers that lie in it are not copied on their way to the other ranks of the host.
FARANDOLE_EXPORT farandole_status farandole_allocate(farandole_context* context, size_t bytes,
                                                     farandole_memory** memory, void** data);
// Null: does nothing. No operation may be using the memory.
FARANDOLE_EXPORT farandole_status farandole_memory_release(farandole_memory* memory);

// The communicator of all ranks.
FARANDOLE_EXPORT farandole_status farandole_world(farandole_context* context,
                                                  farandole_communicator** world);
// Collective: the ranks that give one color become a communicator, ordered by key and, where keys
// are equal, by rank here. color = null: this rank takes no part, and *made is null.
FARANDOLE_EXPORT farandole_status farandole_split(farandole_communicator* parent,
                                                  const int64_t* color, int64_t key,
                                                  farandole_communicator** made);
// Collective: these ranks of the parent, in this order. Other ranks may give any list that they
// are not in; *made is null there. Errors: FARANDOLE_MISMATCH if members give different lists.
FARANDOLE_EXPORT farandole_status farandole_group(farandole_communicator* parent,
                                                  const int32_t* ranks, size_t rank_count,
                                                  farandole_communicator** made);
// The same, but only these ranks call it, each with the same list and tag; what the others do, or
// whether they live, does not matter. Calls with different tags may run at the same time.
// timeout_ms = 0: the job's start timeout. Blocks until every member has called it.
// Errors: FARANDOLE_TIMED_OUT naming the members that did not come; FARANDOLE_RANK_FAILED naming
// one that is gone; FARANDOLE_ABORTED from the new communicator if the time of a member was up.
FARANDOLE_EXPORT farandole_status farandole_create_group(farandole_communicator* parent,
                                                         const int32_t* ranks, size_t rank_count,
                                                         int32_t tag, int32_t timeout_ms,
                                                         farandole_communicator** made);
// Collective: the ranks on this rank's host; the ranks that have this rank's position on theirs.
FARANDOLE_EXPORT farandole_status farandole_node(farandole_communicator* parent,
                                                 farandole_communicator** made);
FARANDOLE_EXPORT farandole_status farandole_across(farandole_communicator* parent,
                                                   farandole_communicator** made);
// This process's rank, and the number of ranks. Either pointer may be null.
FARANDOLE_EXPORT farandole_status farandole_communicator_rank(
    const farandole_communicator* communicator, int32_t* rank, int32_t* size);
// The members' ranks in the world, by rank here. `length` is the size of the communicator.
FARANDOLE_EXPORT farandole_status farandole_world_ranks(const farandole_communicator* communicator,
                                                        int32_t* world_ranks, size_t length);
// Ends the communicator on all its members, for this reason, which may be null and of which 2000
// bytes count. What is in flight on it, and every later call there, fails with FARANDOLE_ABORTED,
// which names this rank and the reason. Other communicators go on. Does not wait for the other
// members. A second call changes nothing.
FARANDOLE_EXPORT farandole_status farandole_abort_communicator(farandole_communicator* communicator,
                                                               const char* reason);
// Ends the use of the communicator on this rank, without waiting for the others; null: does
// nothing. What is in flight goes on. Of the world only the handle goes.
FARANDOLE_EXPORT farandole_status
farandole_communicator_release(farandole_communicator* communicator);

// A collective to its end, or its start. `options` may be null. All ranks of a communicator call
// the same collectives in the same order; those with a root synchronize too.
//
// Memory  Out of place, or in place: in = out; for reducescatter, and scatter at the root, `out` is
//         this rank's chunk of `in`; for allgather, and gather at the root, `in` is this rank's
//         chunk of `out`. No other overlap. Buffers stay valid and untouched until the operation
//         ended.
// Errors  FARANDOLE_INVALID_ARGUMENT before anything moves; then those of farandole_wait().
FARANDOLE_EXPORT farandole_status farandole_run(farandole_communicator* communicator,
                                                const farandole_arguments* arguments,
                                                const farandole_options* options);
FARANDOLE_EXPORT farandole_status farandole_start(farandole_communicator* communicator,
                                                  const farandole_arguments* arguments,
                                                  const farandole_options* options,
                                                  farandole_request** request);
// Messages that run at once and end together, to their end, or their start. Messages between two
// ranks match in the order of the calls, per direction. A message to this rank itself needs its
// counterpart in the same list. Of `options` only the name and `caller_waits` count.
//
// Errors  FARANDOLE_MISMATCH at the receiver when a message has another length or dtype than its
//         receive; it is dropped, the rest and all later ones go on.
FARANDOLE_EXPORT farandole_status farandole_run_messages(farandole_communicator* communicator,
                                                         const farandole_message* messages,
                                                         size_t message_count,
                                                         const farandole_options* options);
FARANDOLE_EXPORT farandole_status farandole_start_messages(farandole_communicator* communicator,
                                                           const farandole_message* messages,
                                                           size_t message_count,
                                                           const farandole_options* options,
                                                           farandole_request** request);

// Blocks until the operation ended. Its buffers are the caller's again afterwards.
// Errors  those of the operation: FARANDOLE_MISMATCH, FARANDOLE_TIMED_OUT, FARANDOLE_RANK_FAILED,
//         FARANDOLE_ABORTED.
FARANDOLE_EXPORT farandole_status farandole_wait(farandole_request* request);
// The same for at most timeout_ms, which is not negative; *done is 0 if it is still running then.
FARANDOLE_EXPORT farandole_status farandole_wait_for(farandole_request* request, int32_t timeout_ms,
                                                     int32_t* done);
// *done is 1 once it ended. Does not block. Errors: as farandole_wait().
FARANDOLE_EXPORT farandole_status farandole_test(farandole_request* request, int32_t* done);
// Ends everything in flight in this process, this operation included, with the error
// FARANDOLE_INTERNAL and this reason, which may be null.
FARANDOLE_EXPORT farandole_status farandole_abort(farandole_request* request, const char* why);
// Null: does nothing. Does not cancel the operation.
FARANDOLE_EXPORT farandole_status farandole_request_release(farandole_request* request);

// Tells of the end of an operation; `error` is null where the status is FARANDOLE_OK, and is valid
// during the call. farandole_last_error() does not change.
typedef void farandole_completion(void* data, farandole_status status,
                                  const farandole_error* error);
// Has `completion` called once with `data`: at once, in this thread, if the operation has ended;
// else when it ends, in a thread of the library or of a caller that waits. What is given first is
// called first. farandole_wait() may return before, and the request may be released before. It must
// not throw, block, or call any function of the library but farandole_test(), since all operations
// of this process wait for it.
FARANDOLE_EXPORT farandole_status farandole_on_complete(farandole_request* request,
                                                        farandole_completion* completion,
                                                        void* data);

// Every function, for those who open the library at run time. An entry is there if struct_size
// reaches behind it and it is not null.
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

// The table of this version, valid for as long as the library is loaded; null for a version that
// this library does not have, and farandole_last_error() says which it has.
FARANDOLE_EXPORT const farandole_api* farandole_get_api(uint32_t version);

#ifdef __cplusplus
}
#endif

#endif  // FARANDOLE_FARANDOLE_H
