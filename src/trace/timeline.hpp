// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/clock.hpp"
#include "farandole/result.hpp"

namespace farandole::coordinator {

/// What a tensor is doing. docs/formats/timeline.md has the names in the file.
enum class Phase : std::uint8_t {
  kQueued,           // submitted here, not yet proposed to the other ranks
  kNegotiating,      // proposed here, until all ranks have agreed to run it
  kWaitingForGroup,  // agreed upon, until the rest of its group or of its cycle is agreed upon too
  kFusedCopyIn,      // into the fused buffer
  kCollective,       // the data plane moves it
  kFusedCopyOut,     // out of the fused buffer
  kDone,             // finished, until its handle is notified
};

struct TimelineOptions {
  std::string path;
  std::int32_t rank = 0, size = 1;
  std::string host;
  std::int32_t pid = 0;
  std::int64_t clock_offset_ns = 0;  // added to this rank's clock it gives rank 0's
  std::uint64_t bytes_max = std::uint64_t{256} << 20;  // at least kTimelineBytesMin
  std::size_t queue_events_max = 16'384;  // between two flushes; 256 bytes of memory each
};

inline constexpr std::uint64_t kTimelineBytesMin = 64 << 10;
inline constexpr std::size_t kTimelineTracksMax = 65'536;   // names of tensors and counters
inline constexpr std::size_t kTimelineNameBytesMax = 256;   // longer ones are cut
inline constexpr std::size_t kTimelineDetailBytesMax = 96;  // longer ones are cut

/// Records what this rank did and when, in a file that Perfetto opens (docs/formats/timeline.md).
/// The file is complete JSON at every moment, even if the process is killed; what was recorded is
/// in it 250 ms later. Recording copies 128 bytes under a short lock: about 80 ns on an AMD EPYC.
///
/// Threads   any; close() once, after the last recording.
/// Memory    Bounded by the options. Events that find the queue or the file full are dropped and
///           counted, in the file too.
/// Errors    open(): kInvalidArgument naming the path. close(): kInternal if the file could not be
///           written to its end; what is in it is still complete JSON.
/// Blocking  span(), counter() and instant() never wait for the disk; the others do.
class Timeline {
 public:
  /// Replaces an existing file in one step. Starts a thread.
  static Result<std::unique_ptr<Timeline>> open(TimelineOptions options);
  ~Timeline();

  /// `tensor` was in `phase` from `begin` to `end`; `detail` is shown with it.
  void span(std::string_view tensor, Phase phase, Clock::time_point begin, Clock::time_point end,
            std::string_view detail = {});
  /// `name` has this value from `when` on. A value that is infinite or not a number is not
  /// recorded.
  void counter(std::string_view name, double value, Clock::time_point when);
  /// A mark at one moment, as at the start of a cycle.
  void instant(std::string_view name, Clock::time_point when);

  /// Returns once everything recorded before is in the file, or dropped.
  void flush();
  /// Flushes and ends; whatever is recorded later is lost. Idempotent.
  Result<void> close();
  /// Events lost so far; complete after flush() and close().
  std::uint64_t dropped() const;

 private:
  struct State;
  explicit Timeline(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace farandole::coordinator
