// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/session.hpp"
#include "bootstrap/tree.hpp"
#include "bootstrap/wire.hpp"

namespace farandole {

/// Control messages between neighbours.
enum class ControlFrame : std::uint8_t {
  kBeat = 1,       // "I live", empty
  kDeparture = 2,  // flooded
  kNotice = 3,     // flooded
  kExpelled = 4,   // "we count you as gone", with the reason
  kReady = 5,      // to the parent: "all of us below are ready to begin", empty
  kStarted = 6,    // flooded by rank 0: "all are", empty
};

/// A message of one rank to all, numbered per sender from 1.
struct Notice {
  std::int32_t from = -1;
  std::uint64_t number = 0;
  std::string message;
};

inline constexpr std::size_t kControlBytesMax = 64 << 10;  // one frame's payload
inline constexpr std::size_t kMessageBytesMax = 60 << 10;  // flood()'s message, leave()'s state
inline constexpr std::size_t kNoticeBytesKept = 1 << 20;
inline constexpr std::size_t kNoticesKept = 256;

std::string encode(const Departure& departure);
std::optional<Departure> decode_departure(std::string_view payload);
std::string encode(const Notice& notice);
std::optional<Notice> decode_notice(std::string_view payload);

/// All membership events so far, in the order in which this rank learnt of them.
///
/// Every link carries them from the beginning and in this order. So if a rank acts on an event, no
/// other rank hears of that before it hears of the event. All departures and the start are kept; of
/// the notices only the latest.
///
/// Threads   one at a time.
class MembershipLog {
 public:
  explicit MembershipLog(int rank_count)
      : departures_(static_cast<std::size_t>(rank_count)),
        gone_(static_cast<std::size_t>(rank_count), false),
        numbers_(static_cast<std::size_t>(rank_count), 0) {}

  /// The frame to pass on, or none if this is not new or names no rank of the job.
  std::optional<std::string> add(const Departure& departure);
  std::optional<std::string> add(const Notice& notice);
  /// The same, for the event that every rank is ready to begin.
  std::optional<std::string> add_start();

  const Gone& gone() const { return gone_; }
  int gone_count() const { return gone_count_; }
  const std::optional<Departure>& departure(int rank) const {
    return departures_[static_cast<std::size_t>(rank)];
  }
  bool failed(int rank) const { return departure(rank) && !departure(rank)->clean; }
  /// All frames in order, for a new link.
  std::string replay() const;

 private:
  struct Item {
    std::string frame;
    bool notice = false;
  };
  bool known(std::int32_t rank) const { return rank >= 0 && rank < std::ssize(departures_); }
  void forget_old_notices();

  std::vector<std::optional<Departure>> departures_;  // index = rank
  Gone gone_;
  int gone_count_ = 0;
  std::vector<std::uint64_t> numbers_;  // index = rank: its last notice
  std::deque<Item> items_;
  std::size_t notices_ = 0, notice_bytes_ = 0;
  bool started_ = false;
};

}  // namespace farandole
