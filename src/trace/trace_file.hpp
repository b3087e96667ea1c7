// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "trace/timeline.hpp"

namespace farandole::coordinator {

/// A JSON file that takes event by event and is whole at every moment.
///
/// A signal that kills the process may end a write between two pages: of 2000 processes killed
/// while they wrote events over their own closing, one left a torn file. So the closing stays
/// where it is, behind blanks, which events replace, each write within one page. Where the blanks
/// end, a copy with twice the room takes the file's name.
///
/// Threads   one at a time.
/// Errors    error() is the errno of what failed last, 0 if nothing did.
class TraceFile {
 public:
  TraceFile() = default;
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;
  ~TraceFile();

  /// 0 or errno.
  int create(const TimelineOptions& options);

  /// Adds a whole event, written at the latest by commit(). False: there was no room for it.
  bool append(std::string_view event, std::int64_t when_ns);

  /// `unheard`: events that never came here.
  void commit(std::uint64_t unheard);

  /// Leaves the blanks out; where there is no room for a copy, they stay.
  void finish();

  std::uint64_t lost() const { return lost_; }
  int error() const { return error_; }

 private:
  static constexpr std::uint64_t kPageBytes = 4096;
  static constexpr std::uint64_t kClosingBytes = 128;  // always, so that it is rewritten at once
  static constexpr std::uint64_t kFirstBytes = 64 << 10;
  static constexpr std::uint64_t kCopyBytes = 1 << 20;

  std::string closing() const;

  /// For the event, and then still for "timeline full": each may have to start a page.
  bool has_room(std::size_t event_bytes);

  void become_full(std::int64_t when_ns);

  /// Into the piece, which does not leave its page.
  void place(std::string_view event);

  void write_piece();

  /// Makes a file of what is written and `more`, its closing at `closing_at` if that is allowed,
  /// and gives it the name. If that fails, all stays as it was, and error_ says why.
  bool move(std::string_view more, std::uint64_t closing_at);

  bool copy_to(int fresh);

  bool write_blanks(int file, std::uint64_t begin, std::uint64_t end);

  bool write_at(int file, std::uint64_t offset, std::string_view text);

  std::string path_;
  int fd_ = -1, error_ = 0;
  std::int32_t rank_ = 0;
  std::uint64_t at_ = 0;  // where the next event goes; blanks from here to the closing
  std::uint64_t closing_at_ = 0, closing_at_max_ = 0;  // starts of pages, but for a finished file
  std::uint64_t unheard_ = 0, lost_ = 0, lost_written_ = 0;
  bool full_ = false;
  std::string piece_;  // whole events that go to at_, in one page
};

}  // namespace farandole::coordinator
