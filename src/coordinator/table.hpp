// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.hpp"
#include "coordinator/messages.hpp"

namespace farandole::coordinator {

/// Why `request` cannot run while the ranks of `neutral` take part without data; empty if it can.
std::string objection(const TensorRequest& request, const RankSet& neutral, const RankNames& names);

/// The error of a group member that fails because of another member.
std::string fails_with_group(const TensorRequest& request, const std::string& cause);

/// Rank 0's table of names that some ranks have asked for and others not yet, in order of arrival.
class Table {
 public:
  struct Limits {
    std::int32_t rank_count = 1;
    std::chrono::nanoseconds warning{0}, shutdown{0};  // 0: never
    RankNames names = {};
  };
  explicit Table(const Limits& limits) : limits_(limits) {}

  void add(Report::Item item, Clock::time_point now);
  /// Some entry has waited for the length of `shutdown`.
  bool overdue(Clock::time_point now) const;
  /// Removes entries that are complete, have failed or are overdue, and returns their responses. A
  /// group goes as one, in the position of its first member.
  std::vector<Response> conclude(const RankSet& joined, Clock::time_point now);
  /// Adds one sentence to `stalls` for each entry that has waited for the length of `warning`,
  /// once.
  void inspect(const RankSet& joined, Clock::time_point now, std::vector<std::string>& stalls);

  std::size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    Report::Item item;
    Clock::time_point since;
    bool warned = false;
  };
  /// The entries under one label, or under several that disagreeing ranks gave to one name.
  struct Group {
    const std::string* label;  // the first
    std::uint32_t size;        // as announced with it
    bool one_label = true;
    std::vector<std::size_t> entries = {};  // in order of arrival
    RankSet asked = {};                     // ranks that gave one of the labels, as far as known
    std::string cause = {};                 // why it fails; empty: it does not
    ErrorKind kind = ErrorKind::kMismatch;  // of the cause
    bool runs = false;
  };
  struct Groups;

  bool everybody(const RankSet& ranks, const RankSet& joined) const;
  bool late(const Entry& entry, std::chrono::nanoseconds limit, Clock::time_point now) const;
  std::string waiting(const Entry& entry, const RankSet& joined, Clock::time_point now) const;
  struct Fault {
    std::string text = {};  // empty: none
    ErrorKind kind = ErrorKind::kMismatch;
  };
  Fault fault(const Entry& entry, const RankSet& joined, Clock::time_point now) const;
  Groups groups() const;
  void judge(Group& group, const RankSet& joined, Clock::time_point now) const;
  void respond(std::size_t index, Fault fault, const RankSet& joined,
               std::vector<Response>& responses) const;
  void drop(const std::vector<bool>& gone);

  Limits limits_;
  std::vector<Entry> entries_;
  std::unordered_map<std::string, std::size_t> places_;  // in entries_, by name
};

}  // namespace farandole::coordinator
