// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace simcuda {

// Streams of all processes of a job together; a process uses the numbers of its destroyed streams
// again.
inline constexpr int kStreams = 256;

/// How far each stream is known to have come: an operation of stream s with a number up to at[s]
/// happened before.
struct VectorClock {
  std::array<std::uint32_t, kStreams> at{};
  void join(const VectorClock& other);
  bool knows(int stream, std::uint32_t number) const {
    return number <= at[static_cast<std::size_t>(stream)];
  }
};

/// What the processes of a job share.
struct Session {
  std::atomic<std::uint32_t> streams, races;
  std::array<std::atomic<std::uint32_t>, kStreams> seen_by_hosts;
};

Session& session();

/// Some host knows that this much is done.
void host_saw(const VectorClock& clock);
/// What the hosts of the job know.
VectorClock host_clock();

/// A lock in memory that processes share. One that a killed process left is taken over after a
/// second.
class SharedLock {
 public:
  explicit SharedLock(std::atomic<std::uint32_t>& word);
  ~SharedLock() { word_ = 0; }
  SharedLock(const SharedLock&) = delete;
  SharedLock& operator=(const SharedLock&) = delete;

 private:
  std::atomic<std::uint32_t>& word_;
};

}  // namespace simcuda
