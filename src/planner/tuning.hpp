// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/result.hpp"
#include "farandole/types.hpp"

namespace farandole {

/// The communicator that a choice is for.
struct GroupShape {
  std::int64_t ranks = 1, hosts = 1;
  std::string_view transport = {};  // of the ranks that are furthest apart
};

/// One line of a tuning file: for these calls, this algorithm. 0: any number.
struct TuningEntry {
  static constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();

  Collective collective = Collective::kAllreduce;
  std::int64_t ranks = 0, hosts = 0;
  std::string transport;                     // empty: any
  std::optional<std::uint64_t> bytes_above;  // the call has more
  std::uint64_t bytes_max = kNoLimit;
  std::string spec;

  bool matches(Collective asked, std::uint64_t bytes, const GroupShape& group) const;
  bool operator==(const TuningEntry&) const = default;
};

/// Choices of algorithms by measurements or by the caller; the first entry that matches counts.
/// Format: docs/formats/tuning.md.
struct TuningTable {
  std::vector<TuningEntry> entries;

  /// The spec for a call; empty if no entry matches.
  std::string_view find(Collective collective, std::uint64_t bytes, const GroupShape& group) const;
  bool operator==(const TuningTable&) const = default;
};

/// Reads the text of a tuning file; `file` is for messages, `transports` are the names that lines
/// may use.
///
/// Errors    kInvalidArgument naming file, line, what was given and what is allowed.
Result<TuningTable> parse_tuning(std::string_view text, const std::string& file,
                                 const std::vector<std::string_view>& transports);

/// The table as text, one line per entry.
std::string to_text(const TuningTable& table);

}  // namespace farandole
