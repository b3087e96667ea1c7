// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "trace/trace_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "trace/event_text.hpp"

namespace farandole::coordinator {

TraceFile::~TraceFile() {
  if (fd_ >= 0) ::close(fd_);
}

int TraceFile::create(const TimelineOptions& options) {
  std::error_code relative;  // the process may change its directory later
  path_ = std::filesystem::absolute(options.path, relative).string();
  rank_ = options.rank;
  closing_at_max_ = (options.bytes_max - kClosingBytes) / kPageBytes * kPageBytes;
  const std::string start = opening(options);
  move(start, kFirstBytes);
  return error_;
}

bool TraceFile::append(std::string_view event, std::int64_t when_ns) {
  if (!full_ && !has_room(event.size())) become_full(when_ns);
  if (full_) {
    ++lost_;
    return false;
  }
  place(event);
  return true;
}

void TraceFile::commit(std::uint64_t unheard) {
  write_piece();
  if (unheard_ == unheard && lost_ == lost_written_) return;
  unheard_ = unheard;
  lost_written_ = lost_;
  write_at(fd_, closing_at_, closing());
}

void TraceFile::finish() {
  const int error = error_;
  if (move({}, at_)) return;
  error_ = error;
}

std::string TraceFile::closing() const {
  std::string text = "\n],\n\"dropped\":{\"queue_full\":" + std::to_string(unheard_) +
                     ",\"file_full\":" + std::to_string(lost_) + "}}";
  text.resize(kClosingBytes - 1, ' ');
  return text + '\n';
}

bool TraceFile::has_room(std::size_t event_bytes) {
  const std::uint64_t needed = at_ + piece_.size() + 2 + event_bytes + 2 * kPageBytes;
  if (needed <= closing_at_) return true;
  if (closing_at_ == closing_at_max_ || error_ != 0) return false;
  return move({}, 2 * closing_at_) && needed <= closing_at_;
}

void TraceFile::become_full(std::int64_t when_ns) {
  full_ = true;
  std::string event = R"({"ph":"i","s":"p","name":"timeline full","pid":)";
  append_number(event, process_of(rank_));
  event += R"(,"tid":)";
  append_number(event, kMarksThread);
  event += R"(,"ts":)";
  append_us(event, when_ns);
  place(event + '}');
}

void TraceFile::place(std::string_view event) {
  const std::uint64_t page_end = (at_ / kPageBytes + 1) * kPageBytes;
  if (at_ + piece_.size() + 2 + event.size() > page_end) {
    write_piece();
    at_ = page_end;
  }
  piece_.append(",\n").append(event);
}

void TraceFile::write_piece() {
  write_at(fd_, at_, piece_);
  at_ += piece_.size();
  piece_.clear();
}

bool TraceFile::move(std::string_view more, std::uint64_t closing_at) {
  closing_at = std::min(closing_at, closing_at_max_);
  const std::string fresh_path = path_ + ".new";
  const int fresh = ::open(fresh_path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fresh < 0) {
    error_ = errno;
    return false;
  }
  const std::uint64_t end = at_ + more.size();
  const bool whole = copy_to(fresh) && write_at(fresh, at_, more) &&
                     write_blanks(fresh, end, closing_at) && write_at(fresh, closing_at, closing());
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

bool TraceFile::copy_to(int fresh) {
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

bool TraceFile::write_blanks(int file, std::uint64_t begin, std::uint64_t end) {
  const std::string blanks(std::min(end - begin, kCopyBytes), ' ');
  for (; begin < end; begin += std::min(end - begin, kCopyBytes)) {
    if (!write_at(file, begin, {blanks.data(), std::min(end - begin, kCopyBytes)})) return false;
  }
  return true;
}

bool TraceFile::write_at(int file, std::uint64_t offset, std::string_view text) {
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

}  // namespace farandole::coordinator
