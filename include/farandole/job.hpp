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

/// A secret in memory pages of its own. They are left out of core dumps, read as zeros in a forked
/// child, and are zeroed when the last copy of the secret is destroyed; copies share them.
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

/// This process's place in a job, and how it finds the other ranks. Context::from_job() makes a
/// context from it. job_from_environment() fills one in, or the caller does.
///
/// Rank 0 is found in one of two ways.
///   store     Rank 0 listens at a free port, or at `port`, and puts its addresses into the store
///             under `prefix`; the others look there. Each start of a job needs a prefix of its
///             own: the next generation on the same store takes another one.
///   address   Without a store the others look for rank 0 at `address` and `port`.
///
/// Either way, every rank proves that it knows `secret` before anything else from it is read. If
/// `secret` is empty, rank 0 makes one and puts it into the store, provided that the store's reach
/// is kProcess or kUser or that `trust_store` is set. Otherwise it comes from FARANDOLE_SECRET,
/// FARANDOLE_SECRET_FILE or the user's own secret file. It is never put into any other store, since
/// everybody who can read it there can join.
///
/// A field that is left at its default is set from the setting of the same name, or by the system.
struct Job {
  Rank rank{0};
  int size = 1;
  int local_rank = 0;  // a hint: the ranks settle it once they have met
  int local_size = 1;  // equal to `size`: all are on this host; without `address`, on loopback only
  std::shared_ptr<Store> store;
  std::string prefix = "farandole";  // of the keys in `store`
  bool trust_store = false;          // only the ranks of this job read the store
  std::string id;                    // unique on a host; empty: from prefix, or address and port
  std::string address;               // of rank 0, host or IP; with a store: where others reach it
  std::uint16_t port = 0;            // first port to try; rank 0 takes the first free one of
  int port_count = 1;                // [port, port + port_count), the others try them in turn
  int listen_fd = -1;                // rank 0: a listening socket from the launcher, or -1
  int launcher_fd = -1;              // a pipe that closes when the launcher dies, or -1
  std::string interface;             // network interface or address of our sockets; empty: any
  std::string host;                  // this host's name, for messages
  std::string host_id;               // equal on two ranks exactly if they can share memory
  Secret secret;                     // never on a command line, never logged
  std::chrono::milliseconds timeout{0};        // FARANDOLE_TIMEOUT: then a silent peer has failed
  std::chrono::milliseconds start_timeout{0};  // FARANDOLE_START_TIMEOUT
  std::string started_by;                      // a name of starters(), "alone" or "Job"
};

/// Reads the job from the environment that its launcher has set (farandole run, torchrun, mpirun,
/// srun and others, docs/starters.md). Without a launcher: a job of one rank.
/// Errors    kInvalidArgument naming the variable, its value and what is allowed; or, for a process
///           that is one of several and cannot find the others, what was seen and what to set.
Result<Job> job_from_environment();

}  // namespace farandole
