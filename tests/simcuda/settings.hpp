// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <string>

// A CUDA driver without a GPU, for tests: a shared library with the driver's symbols.
//
// Streams are queues that threads work off, with random delays. Memory of the device is memory of
// the host that faults when the host touches it. Every access by an operation is compared with
// earlier ones: what no event, wait or look of the host orders is reported as a race. A call that
// would wait for ever says who waits for what and ends the process.
//
// The host's knowledge is the sum of all that any host thread of the job has seen: the simulator
// does not see how threads and processes of the host talk with each other, and takes it that they
// do. So it reports no race that is none, and misses some that two hosts could have.
namespace simcuda {

inline long setting(const char* name, long otherwise) {
  const char* const value = std::getenv(name);
  return value == nullptr ? otherwise : std::atol(value);
}

/// What the environment says, read once.
struct Settings {
  /// File that the processes of a job share; empty: this process is alone.
  std::string session =
      std::getenv("SIMCUDA_SESSION") != nullptr ? std::getenv("SIMCUDA_SESSION") : "";
  long seed = setting("SIMCUDA_SEED", 1);
  long rank = setting("FARANDOLE_RANK", 0);          // so that ranks have other delays
  long delay_us = setting("SIMCUDA_DELAY_US", 200);  // at most, before half of all operations
  long queues = setting("SIMCUDA_QUEUES", 32);       // hardware queues per priority
  long devices = setting("SIMCUDA_DEVICES", 1);
  long version = setting("SIMCUDA_VERSION", 12040);
  bool words = setting("SIMCUDA_WORDS", 1) != 0;  // operations on streams that wait for words
  bool ipc = setting("SIMCUDA_IPC", 1) != 0;
  long patience_ms = setting("SIMCUDA_PATIENCE_MS", 20000);  // until a wait counts as a deadlock
};

const Settings& settings();

// How a process ends in which the simulator found a fault.
inline constexpr int kUnusable = 76, kDeadlock = 77, kRace = 78, kFault = 79;

/// Writes a line to standard error.
void report(const std::string& line);
[[noreturn]] void die(int status, const std::string& line);

}  // namespace simcuda
