// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
// Streams, events, and words by which streams and hosts wait for each other.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>

#include "simcuda/calls.hpp"
#include "simcuda/settings.hpp"

using namespace farandole::cuda;
using simcuda::Accessor;
using simcuda::current;
using simcuda::IpcHandle;
using simcuda::settings;
using simcuda::Streams;
using simcuda::StreamState;
using simcuda::VectorClock;

namespace {

/// An event. Lies in a file, so that other processes can open it.
struct EventState {
  static constexpr std::uint32_t kRecords = 8;  // that a wait may still ask for
  struct Record {
    std::atomic<std::uint32_t> done;  // the number of the latest record of this place that is done
    VectorClock clock;
    double seconds;
  };
  std::atomic<std::uint32_t> issued, lock;
  std::array<Record, kRecords> records;
  /// The place of the record of this number. Records on different streams end in any order.
  Record& at(std::uint32_t number) { return records[number % kRecords]; }
  bool is_done(std::uint32_t number) { return number == 0 || at(number).done >= number; }
};

struct EventHandle {
  EventState* state;
  int fd;
  bool timed;
};

EventHandle* of(Event event) {
  return reinterpret_cast<EventHandle*>(event);
}

Event map_event(int fd, bool timed) {
  void* const memory =
      ::mmap(nullptr, sizeof(EventState), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return nullptr;
  ++simcuda::living_events();
  return reinterpret_cast<Event>(new EventHandle{static_cast<EventState*>(memory), fd, timed});
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

VectorClock clock_of(EventState& state, std::uint32_t number) {
  const simcuda::SharedLock lock(state.lock);
  return state.at(number).clock;
}

StreamState* stream_of(Stream stream) {
  return Streams::instance().of(stream, current());
}

#define NEED_STREAM(name, handle)              \
  NEED_CONTEXT();                              \
  StreamState* const name = stream_of(handle); \
  if (name == nullptr) return kInvalidHandle;  \
  if (name->capturing) return kCaptureUnsupported

}  // namespace

SIMCUDA_API cuStreamCreateWithPriority(Stream* stream, unsigned flags, int priority) {
  ENTER(cuStreamCreateWithPriority);
  NEED_CONTEXT();
  const bool blocking = (flags & kNonBlockingStream) == 0;
  *stream = reinterpret_cast<Stream>(Streams::instance().create(current(), blocking, priority));
  return kSuccess;
}

SIMCUDA_API cuStreamCreate(Stream* stream, unsigned flags) {
  return cuStreamCreateWithPriority(stream, flags, 0);
}

SIMCUDA_API cuStreamDestroy_v2(Stream stream) {
  ENTER(cuStreamDestroy_v2);
  const bool there = Streams::instance().destroy(reinterpret_cast<StreamState*>(stream));
  return there ? kSuccess : kInvalidHandle;
}

SIMCUDA_API cuStreamGetCtx(Stream stream, Context* context) {
  ENTER(cuStreamGetCtx);
  const StreamState* const found = stream_of(stream);
  if (found == nullptr) return kInvalidHandle;
  *context = reinterpret_cast<Context>(const_cast<simcuda::DeviceState*>(found->device));
  return kSuccess;
}

SIMCUDA_API cuStreamSynchronize(Stream stream) {
  ENTER(cuStreamSynchronize);
  NEED_STREAM(found, stream);
  Streams::instance().drain(*found);
  return kSuccess;
}

SIMCUDA_API cuStreamQuery(Stream stream) {
  ENTER(cuStreamQuery);
  NEED_STREAM(found, stream);
  return Streams::instance().is_done(*found) ? kSuccess : kNotReady;
}

// Capturing is known about, and nothing more: whoever enqueues work in it gets an error.
SIMCUDA_API cuStreamBeginCapture_v2(Stream stream, int) {
  ENTER(cuStreamBeginCapture_v2);
  NEED_STREAM(found, stream);
  found->capturing = true;
  return kSuccess;
}

SIMCUDA_API cuStreamEndCapture(Stream stream, void** graph) {
  ENTER(cuStreamEndCapture);
  NEED_CONTEXT();
  StreamState* const found = stream_of(stream);
  if (found == nullptr || !found->capturing) return kInvalidHandle;
  found->capturing = false;
  *graph = nullptr;
  return kSuccess;
}

SIMCUDA_API cuStreamIsCapturing(Stream stream, CaptureStatus* status) {
  ENTER(cuStreamIsCapturing);
  NEED_CONTEXT();
  const StreamState* const found = stream_of(stream);
  if (found == nullptr) return kInvalidHandle;
  *status = found->capturing ? kCapturing : kNotCapturing;
  return kSuccess;
}

SIMCUDA_API cuEventCreate(Event* event, unsigned flags) {
  ENTER(cuEventCreate);
  NEED_CONTEXT();
  const int fd = ::memfd_create("simcuda-event", MFD_CLOEXEC);
  if (fd < 0 || ::ftruncate(fd, sizeof(EventState)) != 0) return kOutOfMemory;
  *event = map_event(fd, (flags & kEventWithoutTime) == 0);
  return *event == nullptr ? kOutOfMemory : kSuccess;
}

SIMCUDA_API cuEventDestroy_v2(Event event) {
  ENTER(cuEventDestroy_v2);
  ::close(of(event)->fd);
  delete of(event);  // but not its state, which what is enqueued may still use
  --simcuda::living_events();
  return kSuccess;
}

SIMCUDA_API cuEventRecord(Event event, Stream stream) {
  ENTER(cuEventRecord);
  NEED_STREAM(found, stream);
  EventState* const state = of(event)->state;
  const std::uint32_t number = ++state->issued;
  Streams::instance().enqueue(*found, "event record", [=](VectorClock& clock, const Accessor&) {
    const simcuda::SharedLock lock(state->lock);
    EventState::Record& record = state->at(number);
    if (record.done > number) return;
    record.clock = clock;
    record.seconds = now();
    record.done = number;
  });
  return kSuccess;
}

SIMCUDA_API cuStreamWaitEvent(Stream stream, Event event, unsigned) {
  ENTER(cuStreamWaitEvent);
  NEED_STREAM(found, stream);
  EventState* const state = of(event)->state;
  const std::uint32_t number = state->issued;  // the latest record that there is now
  if (number == 0) return kSuccess;
  Streams::instance().enqueue(
      *found, "event wait",
      [=](VectorClock& clock, const Accessor&) { clock.join(clock_of(*state, number)); },
      [=] { return state->is_done(number); });
  return kSuccess;
}

SIMCUDA_API cuEventQuery(Event event) {
  ENTER(cuEventQuery);
  EventState& state = *of(event)->state;
  const std::uint32_t number = state.issued;
  if (!state.is_done(number)) return kNotReady;
  if (number > 0) simcuda::host_saw(clock_of(state, number));
  return kSuccess;
}

SIMCUDA_API cuEventSynchronize(Event event) {
  ENTER(cuEventSynchronize);
  EventState& state = *of(event)->state;
  const std::uint32_t number = state.issued;
  while (!state.is_done(number)) ::usleep(20);
  if (number > 0) simcuda::host_saw(clock_of(state, number));
  return kSuccess;
}

SIMCUDA_API cuEventElapsedTime(float* ms, Event begin, Event end) {
  ENTER(cuEventElapsedTime);
  if (!of(begin)->timed || !of(end)->timed) return kInvalidHandle;
  EventState &first = *of(begin)->state, &last = *of(end)->state;
  if (!first.is_done(first.issued) || !last.is_done(last.issued)) return kNotReady;
  *ms = static_cast<float>((last.at(last.issued).seconds - first.at(first.issued).seconds) * 1e3);
  return kSuccess;
}

SIMCUDA_API cuIpcGetEventHandle(IpcHandle* handle, Event event) {
  ENTER(cuIpcGetEventHandle);
  if (of(event)->timed) return kInvalidHandle;
  std::memset(handle, 0, sizeof *handle);
  std::snprintf(handle->bytes, sizeof handle->bytes, "%d %d", ::getpid(), of(event)->fd);
  return kSuccess;
}

SIMCUDA_API cuIpcOpenEventHandle(Event* event, IpcHandle handle) {
  ENTER(cuIpcOpenEventHandle);
  int pid = 0, fd = 0;
  if (std::sscanf(handle.bytes, "%d %d", &pid, &fd) != 2) return kInvalidHandle;
  const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(fd);
  const int own = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (own < 0) return kInvalidHandle;
  *event = map_event(own, false);
  return *event == nullptr ? kOutOfMemory : kSuccess;
}

SIMCUDA_API cuStreamWriteValue32_v2(Stream stream, Address word, std::uint32_t value, unsigned) {
  ENTER(cuStreamWriteValue32_v2);
  if (!settings().words) return kNotSupported;
  NEED_STREAM(found, stream);
  const auto* const pointer = reinterpret_cast<const void*>(word);
  Streams::instance().enqueue(*found, "word write", [=](VectorClock& clock, const Accessor&) {
    // Hosts may read it from now on, and other streams may wait for it.
    simcuda::host_saw(clock);
    std::byte* const at = simcuda::Memory::instance().word(pointer);
    __atomic_store_n(reinterpret_cast<std::uint32_t*>(at), value, __ATOMIC_SEQ_CST);
  });
  return kSuccess;
}

SIMCUDA_API cuStreamWaitValue32_v2(Stream stream, Address word, std::uint32_t value,
                                   unsigned flags) {
  ENTER(cuStreamWaitValue32_v2);
  if (!settings().words) return kNotSupported;
  NEED_STREAM(found, stream);
  const auto* const at = reinterpret_cast<const std::uint32_t*>(
      simcuda::Memory::instance().word(reinterpret_cast<const void*>(word)));
  const auto is_ready = [=] {
    const std::uint32_t seen = __atomic_load_n(at, __ATOMIC_SEQ_CST);
    switch (flags & 3) {
      case kWaitAtLeast:
        return static_cast<std::int32_t>(seen - value) >= 0;
      case 1:
        return seen == value;
      case 2:
        return (seen & value) != 0;
      default:
        return (seen | value) != ~0U;
    }
  };
  Streams::instance().enqueue(
      *found, "word wait",
      [](VectorClock& clock, const Accessor&) { clock.join(simcuda::host_clock()); }, is_ready);
  return kSuccess;
}

SIMCUDA_API cuLaunchHostFunc(Stream stream, void (*function)(void*), void* data) {
  ENTER(cuLaunchHostFunc);
  NEED_STREAM(found, stream);
  Streams::instance().enqueue(*found, "host function", [=](VectorClock& clock, const Accessor&) {
    simcuda::host_saw(clock);
    function(data);
  });
  return kSuccess;
}

/// For stand-ins of NCCL and torch: work of theirs on a stream, which reads and writes `count`
/// parts of memory. `run` gets where they really are, and may wait for peers.
SIMCUDA_API simcuda_task(Stream stream, const char* what, int count, const void* const* parts,
                         const std::size_t* bytes, const int* writes,
                         void (*run)(void* argument, void** real), void* argument) {
  ENTER(simcuda_task);
  NEED_STREAM(found, stream);
  struct Part {
    const void* at;
    std::size_t bytes;
    bool writes;
  };
  std::vector<Part> all;
  for (int i = 0; i < count; ++i) all.push_back({parts[i], bytes[i], writes[i] != 0});
  Streams::instance().enqueue(*found, what, [=](VectorClock&, const Accessor& who) {
    std::vector<void*> real;
    for (const Part& part : all) {
      real.push_back(part.at == nullptr ? nullptr
                                        : simcuda::Memory::instance().touch(
                                              who, part.at, part.bytes, part.writes));
    }
    run(argument, real.data());
  });
  return kSuccess;
}
