// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "trace/timeline.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

namespace farandole::coordinator {
namespace {

constexpr auto kFlushInterval = std::chrono::milliseconds(250);
constexpr std::uint64_t kPageBytes = 4096;
// Perfetto takes process 0 and thread 0 for the idle ones (google/perfetto#394, #560).
constexpr std::uint32_t kMarksThread = 1;
constexpr std::uint32_t kFirstTensorThread = 2;
constexpr std::string_view kFurtherNames = "(further names)";
constexpr std::array<std::string_view, 7> kPhases = {
    "queued",         "negotiating", "waiting for group", "fused copy in", "collective",
    "fused copy out", "done"};

std::int64_t nanoseconds(Clock::time_point when) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(when.time_since_epoch()).count();
}

std::int32_t process_of(std::int32_t rank) {
  return rank + 1;
}

template <class Number>
void append_number(std::string& text, Number number) {
  std::array<char, 32> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  text.append(digits.data(), end);
}

/// "12.345" of 12,345 ns.
void append_us(std::string& text, std::int64_t ns) {
  append_number(text, ns / 1000);
  const auto rest = static_cast<int>(ns % 1000);
  text += {'.', static_cast<char>('0' + rest / 100), static_cast<char>('0' + rest / 10 % 10),
           static_cast<char>('0' + rest % 10)};
}

/// Bytes of the well-formed UTF-8 character that `text` starts with; 0 if there is none.
std::size_t character_bytes(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  const std::size_t count = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (text.size() < count) return 0;
  // Of the second byte: no longer form than needed, no surrogate, nothing beyond U+10FFFF.
  const unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (byte(1) < low || byte(1) > high) return 0;
  for (std::size_t i = 2; i < count; ++i) {
    if (byte(i) < 0x80 || byte(i) > 0xBF) return 0;
  }
  return count;
}

/// As a JSON string; each byte that is no UTF-8 becomes U+FFFD.
void append_quoted(std::string& text, std::string_view value) {
  text += '"';
  while (!value.empty()) {
    const std::size_t bytes = character_bytes(value);
    const auto first = static_cast<unsigned char>(value[0]);
    if (bytes == 0) {
      text += "\\ufffd";
    } else if (first == '"' || first == '\\') {
      text += {'\\', value[0]};
    } else if (first < 0x20) {
      constexpr std::string_view kHex = "0123456789abcdef";
      text += first < 0x10 ? "\\u000" : "\\u001";
      text += kHex[first % 16];
    } else {
      text += value.substr(0, bytes);
    }
    value.remove_prefix(std::max<std::size_t>(bytes, 1));
  }
  text += '"';
}

void append_metadata(std::string& text, std::string_view kind, std::int32_t rank,
                     std::uint32_t thread, std::string_view name) {
  text.append(R"({"ph":"M","name":")").append(kind).append(R"(","pid":)");
  append_number(text, process_of(rank));
  text += R"(,"tid":)";
  append_number(text, thread);
  text += R"(,"args":{"name":)";
  append_quoted(text, name);
  text += "}}";
}

/// What the file starts with, up to the first events.
std::string opening(const TimelineOptions& options) {
  std::string text = R"({"otherData":{"format":"farandole timeline","version":1,"rank":)";
  append_number(text, options.rank);
  text += R"(,"size":)";
  append_number(text, options.size);
  text += R"(,"host":)";
  append_quoted(text, options.host);
  text += R"(,"pid":)";
  append_number(text, options.pid);
  text += R"(,"clock":"CLOCK_MONOTONIC","clock_offset_ns":)";
  append_number(text, options.clock_offset_ns);
  text += "},\n\"traceEvents\":[\n";
  append_metadata(text, "process_name", options.rank, kMarksThread,
                  "rank " + std::to_string(options.rank) + " (" + options.host + ", pid " +
                      std::to_string(options.pid) + ")");
  text += R"(,
{"ph":"M","name":"process_sort_index","pid":)";
  append_number(text, process_of(options.rank));
  text += R"(,"args":{"sort_index":)";
  append_number(text, options.rank);
  text += "}},\n";
  append_metadata(text, "thread_name", options.rank, kMarksThread, "marks");
  return text;
}

/// A JSON file that takes event by event and is whole at every moment.
///
/// A signal that kills the process may end a write between two pages: of 2000 processes killed
/// while they wrote events over their own closing, one left a torn file. So the closing stays
/// where it is, behind blanks, which events replace, each write within one page. Where the blanks
/// end, a copy with twice the room takes the file's name.
class TraceFile {
 public:
  TraceFile() = default;
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;
  ~TraceFile() {
    if (fd_ >= 0) ::close(fd_);
  }

  /// 0 or errno.
  int create(const TimelineOptions& options) {
    std::error_code relative;  // the process may change its directory later
    path_ = std::filesystem::absolute(options.path, relative).string();
    rank_ = options.rank;
    closing_at_max_ = (options.bytes_max - kClosingBytes) / kPageBytes * kPageBytes;
    const std::string start = opening(options);
    move(start, kFirstBytes);
    return error_;
  }

  /// Adds a whole event, written at the latest by commit(). False: there was no room for it.
  bool append(std::string_view event, std::int64_t when_ns) {
    if (!full_ && !has_room(event.size())) become_full(when_ns);
    if (full_) {
      ++lost_;
      return false;
    }
    place(event);
    return true;
  }

  /// `unheard`: events that never came here.
  void commit(std::uint64_t unheard) {
    write_piece();
    if (unheard_ == unheard && lost_ == lost_written_) return;
    unheard_ = unheard;
    lost_written_ = lost_;
    write_at(fd_, closing_at_, closing());
  }

  /// Leaves the blanks out; where there is no room for a copy, they stay.
  void finish() {
    const int error = error_;
    if (move({}, at_)) return;
    error_ = error;
  }

  std::uint64_t lost() const { return lost_; }
  int error() const { return error_; }

 private:
  static constexpr std::uint64_t kClosingBytes = 128;  // always, so that it is rewritten at once
  static constexpr std::uint64_t kFirstBytes = 64 << 10;
  static constexpr std::uint64_t kCopyBytes = 1 << 20;

  std::string closing() const {
    std::string text = "\n],\n\"dropped\":{\"queue_full\":" + std::to_string(unheard_) +
                       ",\"file_full\":" + std::to_string(lost_) + "}}";
    text.resize(kClosingBytes - 1, ' ');
    return text + '\n';
  }

  /// For the event, and then still for "timeline full": each may have to start a page.
  bool has_room(std::size_t event_bytes) {
    const std::uint64_t needed = at_ + piece_.size() + 2 + event_bytes + 2 * kPageBytes;
    if (needed <= closing_at_) return true;
    if (closing_at_ == closing_at_max_ || error_ != 0) return false;
    return move({}, 2 * closing_at_) && needed <= closing_at_;
  }

  void become_full(std::int64_t when_ns) {
    full_ = true;
    std::string event = R"({"ph":"i","s":"p","name":"timeline full","pid":)";
    append_number(event, process_of(rank_));
    event += R"(,"tid":)";
    append_number(event, kMarksThread);
    event += R"(,"ts":)";
    append_us(event, when_ns);
    place(event + '}');
  }

  /// Into the piece, which does not leave its page.
  void place(std::string_view event) {
    const std::uint64_t page_end = (at_ / kPageBytes + 1) * kPageBytes;
    if (at_ + piece_.size() + 2 + event.size() > page_end) {
      write_piece();
      at_ = page_end;
    }
    piece_.append(",\n").append(event);
  }

  void write_piece() {
    write_at(fd_, at_, piece_);
    at_ += piece_.size();
    piece_.clear();
  }

  /// Makes a file of what is written and `more`, its closing at `closing_at` if that is allowed,
  /// and gives it the name. If that fails, all stays as it was, and error_ says why.
  bool move(std::string_view more, std::uint64_t closing_at) {
    closing_at = std::min(closing_at, closing_at_max_);
    const std::string fresh_path = path_ + ".new";
    const int fresh = ::open(fresh_path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fresh < 0) {
      error_ = errno;
      return false;
    }
    const std::uint64_t end = at_ + more.size();
    const bool whole = copy_to(fresh) && write_at(fresh, at_, more) &&
                       write_blanks(fresh, end, closing_at) &&
                       write_at(fresh, closing_at, closing());
    if (!whole || std::rename(fresh_path.c_str(), path_.c_str()) != 0) {
      if (whole) error_ = errno;
      ::unlink(fresh_path.c_str());
      ::close(fresh);
      return false;
    }
    if (fd_ >= 0) ::close(fd_);
    fd_ = fresh;
    at_ = end;
    closing_at_ = closing_at;
    return true;
  }

  bool copy_to(int fresh) {
    std::string buffer(std::min(at_, kCopyBytes), ' ');
    for (std::uint64_t done = 0; done < at_;) {
      const std::size_t wanted = std::min(at_ - done, kCopyBytes);
      const ssize_t got = ::pread(fd_, buffer.data(), wanted, static_cast<off_t>(done));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) {
        error_ = got < 0 ? errno : EIO;
        return false;
      }
      const auto bytes = static_cast<std::size_t>(got);
      if (!write_at(fresh, done, {buffer.data(), bytes})) return false;
      done += bytes;
    }
    return true;
  }

  bool write_blanks(int file, std::uint64_t begin, std::uint64_t end) {
    const std::string blanks(std::min(end - begin, kCopyBytes), ' ');
    for (; begin < end; begin += std::min(end - begin, kCopyBytes)) {
      if (!write_at(file, begin, {blanks.data(), std::min(end - begin, kCopyBytes)})) return false;
    }
    return true;
  }

  bool write_at(int file, std::uint64_t offset, std::string_view text) {
    while (!text.empty()) {
      const ssize_t written = ::pwrite(file, text.data(), text.size(), static_cast<off_t>(offset));
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) {
        error_ = written < 0 ? errno : EIO;
        return false;
      }
      text.remove_prefix(static_cast<std::size_t>(written));
      offset += static_cast<std::uint64_t>(written);
    }
    return true;
  }

  std::string path_;
  int fd_ = -1, error_ = 0;
  std::int32_t rank_ = 0;
  std::uint64_t at_ = 0;  // where the next event goes; blanks from here to the closing
  std::uint64_t closing_at_ = 0, closing_at_max_ = 0;  // starts of pages, but for a finished file
  std::uint64_t unheard_ = 0, lost_ = 0, lost_written_ = 0;
  bool full_ = false;
  std::string piece_;  // whole events that go to at_, in one page
};

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

/// Under the lock.
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
  // The process's signals are for its other threads.
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
