// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "simcuda/streams.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>

#include "simcuda/settings.hpp"

namespace simcuda {
namespace {

using Time = std::chrono::steady_clock;

// Handles of cuda.h that stand for default streams.
const void* const kLegacy = reinterpret_cast<const void*>(std::uintptr_t{1});
const void* const kPerThread = reinterpret_cast<const void*>(std::uintptr_t{2});

/// Sleeps longer and longer, since many queues may wait at once on few cores.
class Pause {
 public:
  void operator()() {
    ::usleep(us_);
    us_ = std::min(us_ * 5 / 4 + 1, 400U);
  }

 private:
  unsigned us_ = 10;
};

}  // namespace

Streams& Streams::instance() {
  static auto* const streams = new Streams;  // its threads never end
  return *streams;
}

Queue* Streams::queue_for(const DeviceState* device, int priority) {
  const Kind kind(device, priority);
  auto& own = queues_[kind];
  const auto most = static_cast<std::size_t>(std::max(settings().queues, 1L));
  if (own.size() == most) return own[turns_[kind]++ % most].get();
  const auto seed = static_cast<std::uint64_t>(settings().seed * 7919 + settings().rank * 104729);
  own.push_back(std::make_unique<Queue>(seed + own.size() + static_cast<std::size_t>(-priority)));
  std::thread([this, queue = own.back().get()] { work(*queue); }).detach();
  return own.back().get();
}

StreamState* Streams::make(const DeviceState* device, bool blocking, int priority) {
  const auto gone = std::ranges::find_if(leaving_, [](const auto& one) { return one->idle(); });
  std::unique_ptr<StreamState> stream;
  if (gone != leaving_.end()) {  // its number, and what is known about that, live on
    stream = std::move(*gone);
    leaving_.erase(gone);
    stream->device = device;
    stream->blocking = blocking;
    stream->capturing = false;
    stream->queue = queue_for(device, priority);
  } else {
    const auto id = static_cast<int>(session().streams.fetch_add(1));
    if (id >= kStreams) die(kUnusable, "too many streams");
    stream.reset(new StreamState{id, device, queue_for(device, priority), blocking});
  }
  living_.push_back(std::move(stream));
  return living_.back().get();
}

StreamState* Streams::create(const DeviceState* device, bool blocking, int priority) {
  const std::lock_guard lock(mutex_);
  return make(device, blocking, priority);
}

bool Streams::destroy(StreamState* stream) {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::ranges::find_if(living_, [&](const auto& one) { return one.get() == stream; });
  if (found == living_.end()) return false;
  leaving_.push_back(std::move(*found));
  living_.erase(found);
  return true;
}

StreamState* Streams::default_of(const DeviceState* device) {
  StreamState*& own = defaults_[device];
  if (own == nullptr) own = make(device, true, 0);
  return own;
}

StreamState* Streams::of(const void* handle, const DeviceState* device) {
  const std::lock_guard lock(mutex_);
  if (handle == nullptr || handle == kLegacy) return default_of(device);
  if (handle == kPerThread) {
    StreamState*& own = of_threads_[{device, std::this_thread::get_id()}];
    if (own == nullptr) own = make(device, true, 0);
    return own;
  }
  const auto found =
      std::ranges::find_if(living_, [&](const auto& one) { return one.get() == handle; });
  return found == living_.end() ? nullptr : found->get();
}

std::size_t Streams::count() const {
  const std::lock_guard lock(mutex_);
  return living_.size() - defaults_.size() - of_threads_.size();
}

void Streams::enqueue(StreamState& stream, std::string what,
                      std::function<void(VectorClock&, const Accessor&)> run,
                      std::function<bool()> ready) {
  auto work = std::make_unique<Work>();
  work->stream = &stream;
  work->what = std::move(what);
  work->run = std::move(run);
  work->ready = std::move(ready);
  const std::lock_guard lock(mutex_);
  work->host = host_clock();
  work->number = ++stream.issued;
  StreamState* const legacy = default_of(stream.device);
  if (&stream == legacy) {
    for (const auto& other : living_) {
      if (other.get() != legacy && other->blocking && other->device == stream.device) {
        work->after.emplace_back(other.get(), other->issued);
      }
    }
  } else if (stream.blocking) {
    work->after.emplace_back(legacy, legacy->issued);
  }
  stream.queue->waiting.push_back(std::move(work));
  stream.queue->more.notify_one();
}

void Streams::work(Queue& queue) {
  const auto delay_us = static_cast<std::uint64_t>(std::max(settings().delay_us, 0L));
  for (;;) {
    Work* work = nullptr;
    {
      std::unique_lock lock(mutex_);
      queue.more.wait(lock, [&] { return !queue.waiting.empty(); });
      work = queue.waiting.front().get();
    }
    if (delay_us > 0 && queue.random() % 2 == 0) {
      ::usleep(static_cast<unsigned>(queue.random() % delay_us));
    }
    wait_until_ready(*work);
    StreamState& stream = *work->stream;
    stream.clock.join(work->host);
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [other, number] : work->after) stream.clock.join(other->known);
    }
    stream.clock.at[static_cast<std::size_t>(stream.id)] = work->number;
    const Accessor who{stream.id, work->number, work->what.c_str(), stream.clock};
    if (work->run) work->run(stream.clock, who);
    std::unique_ptr<Work> finished;
    const std::lock_guard lock(mutex_);
    finished = std::move(queue.waiting.front());
    queue.waiting.pop_front();
    stream.known = stream.clock;
    stream.done = work->number;
  }
}

void Streams::wait_until_ready(const Work& work) {
  const auto end = Time::now() + std::chrono::milliseconds(settings().patience_ms);
  Pause pause;
  const auto is_ready = [&] {
    return std::ranges::all_of(work.after,
                               [](const auto& one) { return one.first->done >= one.second; }) &&
           (!work.ready || work.ready());
  };
  while (!is_ready()) {
    pause();
    if (Time::now() > end) report_deadlock();
  }
}

void Streams::report_deadlock() {
  std::string text = "DEADLOCK: nothing more happens to";
  const std::lock_guard lock(mutex_);
  for (const auto& [kind, queues] : queues_) {
    for (const auto& queue : queues) {
      if (queue->waiting.empty()) continue;
      const Work& first = *queue->waiting.front();
      text += " stream " + std::to_string(first.stream->id) + " in its operation " +
              std::to_string(first.number) + ", " + first.what + ", with " +
              std::to_string(queue->waiting.size() - 1) + " more behind it in its queue;";
    }
  }
  die(kDeadlock, text);
}

void Streams::wait_for(const std::vector<StreamState*>& streams) {
  std::vector<std::pair<StreamState*, std::uint32_t>> until;
  {
    const std::lock_guard lock(mutex_);
    for (StreamState* stream : streams) until.emplace_back(stream, stream->issued);
  }
  for (const auto& [stream, number] : until) {
    Pause pause;
    while (stream->done < number) pause();
    const std::lock_guard lock(mutex_);
    host_saw(stream->known);
  }
}

void Streams::drain(StreamState& stream) {
  wait_for({&stream});
}

void Streams::drain(const DeviceState* device) {
  std::vector<StreamState*> all;
  {
    const std::lock_guard lock(mutex_);
    for (const auto* streams : {&living_, &leaving_}) {
      for (const auto& stream : *streams) {
        if (stream->device == device) all.push_back(stream.get());
      }
    }
  }
  wait_for(all);
}

bool Streams::is_done(StreamState& stream) {
  const std::lock_guard lock(mutex_);
  if (!stream.idle()) return false;
  host_saw(stream.known);
  return true;
}

}  // namespace simcuda
