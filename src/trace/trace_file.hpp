// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "trace/timeline.hpp"

namespace farandole::coordinator {

/// A JSON file that is written event by event and is complete at every moment.
///
/// A signal that kills the process may end a write between two pages: of 2000 processes killed
/// while they overwrote the closing text with events, one left a torn file. So the closing text
/// stays in its place, after blanks. Events overwrite the blanks, and each write stays within one
/// page. When the blanks are used up, a copy with twice the room takes the file's name.
///
/// Threads   one at a time.
/// Errors    error() is the errno of what failed last, 0 if nothing did.
class TraceFile {
 public:
  TraceFile() = default;
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;
  ~TraceFile();

  /// Returns 0 or an errno.
  int create(const TimelineOptions& options);

  /// Adds a whole event, which commit() writes at the latest. False: there was no room for it.
  bool append(std::string_view event, std::int64_t when_ns);

  /// Writes what was added. `unheard`: how many events have been dropped before they came here.
  void commit(std::uint64_t unheard);

  /// Removes the blanks; they stay if there is no room for a copy.
  void finish();

  std::uint64_t lost() const { return lost_; }
  int error() const { return error_; }

 private:
  static constexpr std::uint64_t kPageBytes = 4096;
  static constexpr std::uint64_t kClosingBytes = 128;  // fixed, so that one write replaces it
  static constexpr std::uint64_t kFirstBytes = 64 << 10;
  static constexpr std::uint64_t kCopyBytes = 1 << 20;

  std::string closing() const;

  /// Room for the event, and after it for "timeline full"; each may have to start a new page.
  bool has_room(std::size_t event_bytes);

  void become_full(std::int64_t when_ns);

  /// Appends to piece_, which stays within its page.
  void place(std::string_view event);

  void write_piece();

  /// Makes a file of what is written so far and `more`, with the closing text at `closing_at` or,
  /// if that is too far, at its limit, and gives it the file's name. If that fails, nothing changes
  /// but error_, which says why.
  bool move(std::string_view more, std::uint64_t closing_at);

  bool copy_to(int fresh);

  bool write_blanks(int file, std::uint64_t begin, std::uint64_t end);

  bool write_at(int file, std::uint64_t offset, std::string_view text);

  std::string path_;
  int fd_ = -1, error_ = 0;
  std::int32_t rank_ = 0;
  std::uint64_t at_ = 0;  // where the next event goes; blanks from here to the closing
  std::uint64_t closing_at_ = 0, closing_at_max_ = 0;  // starts of pages, except in a finished file
  std::uint64_t unheard_ = 0, lost_ = 0, lost_written_ = 0;
  bool full_ = false;
  std::string piece_;  // whole events that go to at_, in one page
};

}  // namespace farandole::coordinator
