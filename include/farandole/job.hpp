// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "farandole/result.hpp"
#include "farandole/store.hpp"
#include "farandole/types.hpp"

namespace farandole {

/// A secret in pages of its own, which are in no core dump, read as zeros in a forked child, and
/// are zeroed when the last copy goes: copies share them.
class Secret {
 public:
  Secret() = default;
  /// The caller clears `text`.
  explicit Secret(std::string_view text);
  std::string_view view() const { return {bytes_.get(), size_}; }
  bool empty() const { return size_ == 0; }

 private:
  std::shared_ptr<char> bytes_;
  std::size_t size_ = 0;
};

/// Who this process is and how it finds the other ranks of its job. Context::from_job() makes a
/// context of it; job_from_environment() is one maker, the caller may be another.
///
/// Rank 0 is found in one of two ways.
///   store     Rank 0 listens at a free port, or at `port`, and leaves its addresses in the store
///             under `prefix`; the others look there. One prefix serves one start of a job: the
///             next generation over the same store takes another one.
///   address   Without a store the others look for rank 0 at `address` and `port`.
///
/// Every rank proves that it knows `secret` before it is listened to, whatever way it was found.
/// Where `secret` is empty, rank 0 makes one and leaves it in the store, if the store's reach is
/// kProcess or kUser or the maker says `trust_store`; else FARANDOLE_SECRET, FARANDOLE_SECRET_FILE
/// or the user's own secret file has it. It is never put into another store, since whoever reads it
/// there can join.
///
/// What is left at its default is found or set as from the environment: by the settings of the same
/// name, or by the system.
struct Job {
  Rank rank{0};
  int size = 1;
  int local_rank = 0;  // a hint: the ranks settle it once they have met
  int local_size = 1;  // equal to `size`: all ranks are on this host, which listens to itself only
  std::shared_ptr<Store> store;
  std::string prefix = "farandole";  // of the keys in `store`
  bool trust_store = false;          // nobody but the ranks of this job reads the store
  std::string id;                    // of two jobs on one host; empty: from store and prefix
  std::string address;               // of rank 0, host or IP; with a store: where others reach it
  std::uint16_t port = 0;            // first port to try; rank 0 takes the first free one of
  int port_count = 1;                // [port, port + port_count), the others try them in turn
  int listen_fd = -1;                // rank 0: a listening socket from the launcher, or -1
  int launcher_fd = -1;              // a pipe that closes when the launcher dies, or -1
  std::string interface;             // network interface or address for our sockets; empty: any
  std::string host;                  // this host's name, for messages
  std::string host_id;               // equal exactly where two ranks can share memory
  Secret secret;                     // never on a command line, never logged
  std::chrono::milliseconds timeout{0};        // FARANDOLE_TIMEOUT: a silent peer is gone
  std::chrono::milliseconds start_timeout{0};  // FARANDOLE_START_TIMEOUT
  std::string started_by;                      // a name of starters(), "alone" or "Job"
};

/// Reads the environment of whoever started this process (farandole run, torchrun, mpirun, srun
/// and others, docs/starters.md); nobody: a job of one.
/// Errors    kInvalidArgument naming the variable, its value and what is allowed, or, for a process
///           that is one of several and cannot find the others, what was seen and what to set.
Result<Job> job_from_environment();

}  // namespace farandole
