// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "bootstrap/secret.hpp"
#include "farandole/result.hpp"
#include "farandole/types.hpp"

namespace farandole {

/// Who this process is and how it finds the others; the outcome of reading the environment.
struct Job {
  Rank rank{0};
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  std::string id;          // two jobs on one host never share it
  std::string address;     // of rank 0, host or IP
  std::uint16_t port = 0;  // first port to try; rank 0 takes the first free one of
  int port_count = 1;      // [port, port + port_count), the others try them in turn
  int listen_fd = -1;      // rank 0: a bound, listening socket from the launcher, or -1
  int launcher_fd = -1;    // a pipe that closes when the launcher dies, or -1
  std::string interface;   // network interface or address for our sockets; empty: any
  Secret secret;           // proves membership; never on a command line, never logged
  std::chrono::milliseconds timeout{30000};         // FARANDOLE_TIMEOUT: a silent peer is gone
  std::chrono::milliseconds start_timeout{120000};  // FARANDOLE_START_TIMEOUT
  std::string started_by;                           // a name of starters(), or "alone"
};

/// Reads the environment of whoever of starters() started this process; nobody: a job of one.
/// Errors    kInvalidArgument naming the variable, its value and what is allowed, or, for a process
///           that is one of several and cannot find the others, what was seen and what to set.
Result<Job> job_from_environment();

}  // namespace farandole
