// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "simcuda/memory.hpp"

namespace simcuda {

struct DeviceState {
  int ordinal = 0;
};

struct Queue;

/// A stream. Its handle is its address.
struct StreamState {
  int id;
  const DeviceState* device;
  Queue* queue;
  bool blocking;  // ordered with the legacy default stream
  bool capturing = false;
  VectorClock clock = {};  // its queue's thread only
  VectorClock known = {};  // the same after the last operation that is done
  std::uint32_t issued = 0;
  std::atomic<std::uint32_t> done{0};
  bool idle() const { return done == issued; }
};

struct Work {
  StreamState* stream;
  std::uint32_t number;
  std::string what;
  VectorClock host;  // what the host knew when it enqueued this
  std::vector<std::pair<StreamState*, std::uint32_t>> after;
  std::function<bool()> ready;  // empty: at once
  std::function<void(VectorClock&, const Accessor&)> run;
};

/// Works off, one after the other, what its streams are given.
struct Queue {
  explicit Queue(std::uint64_t seed) : random(seed) {}
  std::deque<std::unique_ptr<Work>> waiting;
  std::condition_variable more;
  std::mt19937_64 random;
};

/// All streams of this process.
///
/// Threads   any.
class Streams {
 public:
  static Streams& instance();

  StreamState* create(const DeviceState* device, bool blocking, int priority);
  /// What is enqueued is still done. False if there is no such stream.
  bool destroy(StreamState* stream);
  /// The stream of a handle, which may be that of a default stream; null if there is none.
  StreamState* of(const void* handle, const DeviceState* device);
  std::size_t count() const;

  /// Enqueues work: `ready` says when it may run.
  void enqueue(StreamState& stream, std::string what,
               std::function<void(VectorClock&, const Accessor&)> run,
               std::function<bool()> ready = {});
  /// The host waits until what is enqueued is done.
  void drain(StreamState& stream);
  /// As a call of the driver that waits for all streams of a device.
  void drain(const DeviceState* device);
  /// As drain(), but looks only.
  bool is_done(StreamState& stream);

 private:
  void wait_for(const std::vector<StreamState*>& streams);
  Queue* queue_for(const DeviceState* device, int priority);
  void work(Queue& queue);
  void wait_until_ready(const Work& work);
  [[noreturn]] void report_deadlock();
  StreamState* make(const DeviceState* device, bool blocking, int priority);
  StreamState* default_of(const DeviceState* device);

  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<StreamState>> living_, leaving_;
  using Kind = std::pair<const DeviceState*, int>;  // device and priority
  std::map<Kind, std::vector<std::unique_ptr<Queue>>> queues_;
  std::map<Kind, std::size_t> turns_;
  std::map<const DeviceState*, StreamState*> defaults_;
  std::map<std::pair<const DeviceState*, std::thread::id>, StreamState*> of_threads_;
};

}  // namespace simcuda
