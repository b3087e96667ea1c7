// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "trace/timeline.hpp"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "trace/event_text.hpp"
#include "trace/trace_file.hpp"

namespace farandole::coordinator {
namespace {

constexpr auto kFlushInterval = std::chrono::milliseconds(250);
constexpr std::string_view kFurtherNames = "(further names)";
constexpr std::array<std::string_view, 7> kPhases = {
    "queued",         "negotiating", "waiting for group", "fused copy in", "collective",
    "fused copy out", "done"};

std::int64_t nanoseconds(Clock::time_point when) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(when.time_since_epoch()).count();
}

enum class Kind : std::uint8_t { kSpan, kCounter, kInstant };

struct Record {
  std::int64_t begin_ns, end_ns;
  double value;
  std::uint32_t track;
  Kind kind;
  Phase phase;
  std::uint8_t detail_bytes;
  std::array<char, kTimelineDetailBytesMax> detail;
};

struct HashOfView : std::hash<std::string_view> {
  using is_transparent = void;
};

}  // namespace

/// Threads that record fill `queue`; the writer swaps it for its own empty one.
struct Timeline::State {
  TimelineOptions options;
  std::thread writer;

  std::mutex mutex;
  std::condition_variable wake, flushed;
  // All guarded by `mutex`.
  std::unordered_map<std::string, std::uint32_t, HashOfView, std::equal_to<>> tracks;
  std::vector<std::string_view> new_names;  // views into `tracks`
  std::vector<Record> queue;                // never grows beyond what is reserved
  std::uint64_t unheard = 0, lost = 0, flushes_asked = 0, flushes_done = 0;
  bool closing = false;

  // The writer's own.
  struct Track {
    std::string_view name;
    bool announced = false;
  };
  TraceFile file;
  std::vector<Track> known;  // index = track
  std::vector<Record> batch;
  std::string event;

  std::uint32_t track_of(std::string_view name);
  void record(std::string_view name, Record record);
  void run();
  void write_batch();
  void write(const Record& record);
  void write_common(const Record& record, std::uint32_t thread);
};

/// The caller holds the mutex.
std::uint32_t Timeline::State::track_of(std::string_view name) {
  name = name.substr(0, kTimelineNameBytesMax);
  if (const auto found = tracks.find(name); found != tracks.end()) return found->second;
  if (tracks.size() >= kTimelineTracksMax) return 0;  // (further names)
  const auto track = static_cast<std::uint32_t>(tracks.size());
  new_names.push_back(tracks.emplace(name, track).first->first);
  return track;
}

void Timeline::State::record(std::string_view name, Record record) {
  bool first = false, half = false;
  {
    const std::lock_guard lock(mutex);
    if (closing || queue.size() >= options.queue_events_max) {
      ++unheard;
      return;
    }
    record.track = track_of(name);
    queue.push_back(record);
    first = queue.size() == 1;
    half = queue.size() == options.queue_events_max / 2;
  }
  if (first || half) wake.notify_one();
}

void Timeline::State::run() {
  std::unique_lock lock(mutex);
  for (bool last = false; !last;) {
    const auto pressed = [this] { return closing || flushes_asked > flushes_done; };
    wake.wait(lock, [&] { return pressed() || !queue.empty(); });
    wake.wait_for(lock, kFlushInterval,
                  [&] { return pressed() || queue.size() >= options.queue_events_max / 2; });
    last = closing;
    const std::uint64_t flushes = flushes_asked, unheard_now = unheard;
    queue.swap(batch);
    for (const std::string_view name : new_names) known.push_back({name});
    new_names.clear();
    lock.unlock();
    write_batch();
    file.commit(unheard_now);
    lock.lock();
    lost = file.lost();
    flushes_done = flushes;
    flushed.notify_all();
  }
}

void Timeline::State::write_batch() {
  for (const Record& record : batch) write(record);
  batch.clear();
}

void Timeline::State::write(const Record& record) {
  Track& track = known[record.track];
  const std::uint32_t thread =
      record.kind == Kind::kSpan ? kFirstTensorThread + record.track : kMarksThread;
  if (record.kind == Kind::kSpan && !track.announced) {
    event.clear();
    append_metadata(event, "thread_name", options.rank, thread, track.name);
    track.announced = file.append(event, record.begin_ns);
    if (!track.announced) return;
  }
  event.clear();
  if (record.kind == Kind::kSpan) {
    event.append(R"({"ph":"X","name":")").append(kPhases[static_cast<std::size_t>(record.phase)]);
    event += '"';
    write_common(record, thread);
    event += R"(,"dur":)";
    append_us(event, std::max<std::int64_t>(record.end_ns - record.begin_ns, 0));
    if (record.detail_bytes != 0) {
      event += R"(,"args":{"detail":)";
      append_quoted(event, {record.detail.data(), record.detail_bytes});
      event += '}';
    }
  } else {
    const bool counts = record.kind == Kind::kCounter;
    event += counts ? R"({"ph":"C","name":)" : R"({"ph":"i","s":"p","name":)";
    append_quoted(event, track.name);
    write_common(record, thread);
    if (counts) {
      event += R"(,"args":{"value":)";
      append_number(event, record.value);
      event += '}';
    }
  }
  event += '}';
  file.append(event, record.begin_ns);
}

void Timeline::State::write_common(const Record& record, std::uint32_t thread) {
  event += R"(,"pid":)";
  append_number(event, process_of(options.rank));
  event += R"(,"tid":)";
  append_number(event, thread);
  event += R"(,"ts":)";
  append_us(event, record.begin_ns);
}

Result<std::unique_ptr<Timeline>> Timeline::open(TimelineOptions options) {
  const auto refused = [&](const std::string& why) {
    return Error{ErrorKind::kInvalidArgument,
                 "The timeline \"" + options.path + "\" cannot be created: " + why + "."};
  };
  if (options.rank < 0 || options.rank >= options.size) {
    return refused("rank " + std::to_string(options.rank) + " of " + std::to_string(options.size));
  }
  if (options.bytes_max < kTimelineBytesMin) {
    return refused(std::to_string(options.bytes_max) + " bytes at most, allowed is from " +
                   std::to_string(kTimelineBytesMin) + " on");
  }
  if (options.queue_events_max == 0) return refused("a queue for 0 events");
  options.host.resize(std::min(options.host.size(), kTimelineNameBytesMax));
  auto state = std::make_unique<State>();
  if (const int error = state->file.create(options); error != 0) return refused(strerror(error));
  state->options = std::move(options);
  state->queue.reserve(state->options.queue_events_max);
  state->batch.reserve(state->options.queue_events_max);
  (void)state->track_of(kFurtherNames);
  // The writer leaves the process's signals to the other threads.
  sigset_t all, before;
  sigfillset(&all);
  for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP}) sigdelset(&all, own);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  state->writer = std::thread([raw = state.get()] { raw->run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return std::unique_ptr<Timeline>(new Timeline(std::move(state)));
}

Timeline::Timeline(std::unique_ptr<State> state) : state_(std::move(state)) {}

Timeline::~Timeline() {
  (void)close();
}

void Timeline::span(std::string_view tensor, Phase phase, Clock::time_point begin,
                    Clock::time_point end, std::string_view detail) {
  detail = detail.substr(0, kTimelineDetailBytesMax);
  Record record;
  record.begin_ns = nanoseconds(begin);
  record.end_ns = nanoseconds(end);
  record.kind = Kind::kSpan;
  record.phase = phase;
  record.detail_bytes = static_cast<std::uint8_t>(detail.size());
  std::copy(detail.begin(), detail.end(), record.detail.begin());
  state_->record(tensor, record);
}

void Timeline::counter(std::string_view name, double value, Clock::time_point when) {
  if (!std::isfinite(value)) return;
  Record record;
  record.begin_ns = nanoseconds(when);
  record.value = value;
  record.kind = Kind::kCounter;
  state_->record(name, record);
}

void Timeline::instant(std::string_view name, Clock::time_point when) {
  Record record;
  record.begin_ns = nanoseconds(when);
  record.kind = Kind::kInstant;
  state_->record(name, record);
}

void Timeline::flush() {
  std::unique_lock lock(state_->mutex);
  if (state_->closing) return;
  const std::uint64_t mine = ++state_->flushes_asked;
  state_->wake.notify_one();
  state_->flushed.wait(lock, [&] { return state_->flushes_done >= mine; });
}

Result<void> Timeline::close() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->closing = true;
  }
  state_->wake.notify_one();
  if (state_->writer.joinable()) {
    state_->writer.join();
    state_->file.finish();
  }
  if (const int error = state_->file.error(); error != 0) {
    return Error{ErrorKind::kInternal,
                 "The timeline \"" + state_->options.path +
                     "\" could not be written to its end: " + strerror(error) + "."};
  }
  return {};
}

std::uint64_t Timeline::dropped() const {
  const std::lock_guard lock(state_->mutex);
  return state_->unheard + state_->lost;
}

}  // namespace farandole::coordinator
