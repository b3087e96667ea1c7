// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/types.hpp"
#include "transport/transfer.hpp"

namespace farandole {

/// What a rank tells all others about one of its operations that stands still: what it believes the
/// operation to be. A rank that believes otherwise reports that to all; a rank that agrees says
/// nothing. docs/design/0014-mismatches.md
struct Claim {
  OperationId id;
  Rank first;  // of the group, see Group::first()
  Rank from;
  Signature signature;
};

std::string encode(std::span<const Claim> claims);
std::optional<std::vector<Claim>> decode_claims(std::string_view message);

/// Two ranks called one operation with different signatures. With an excuse: a rank called the
/// operation and could not start it; if `lost` is set, because that rank is gone.
struct Disagreement {
  OperationId id;
  Rank first;  // of the group
  Rank reporter, other;
  Signature reported, seen;
  std::uint64_t reported_bytes = 0, seen_bytes = 0;
  std::string excuse;
  std::optional<Rank> lost = std::nullopt;  // in the world
};

std::string encode(const Disagreement& disagreement);
std::optional<Disagreement> decode_disagreement(std::string_view message);

/// How long an operation of this rank stands still before the rank makes its claim. Ranks wait for
/// different times, in an order that changes from operation to operation, so that one claim or a
/// few reach all other ranks before these make their own, whichever rank is late.
std::chrono::nanoseconds claims_after(OperationId id, Rank self, int size,
                                      std::chrono::nanoseconds patience);
/// The first and the longest patience: each claim on a communicator doubles its patience, since
/// most claims are only about a rank that is late.
inline constexpr std::chrono::nanoseconds kPatienceMin = std::chrono::milliseconds(50);
inline constexpr std::chrono::nanoseconds kPatienceMax = std::chrono::milliseconds(400);

/// Messages about operations that are not in flight here; the latest kMax are kept.
template <class Said>
class Ahead {
 public:
  static constexpr std::size_t kMax = 256;

  bool empty() const { return said_.empty(); }
  std::size_t size() const { return said_.size(); }
  void add(Said said) {
    if (said_.size() == kMax) said_.erase(said_.begin());
    said_.push_back(std::move(said));
  }
  /// The operation starts: returns the messages about it, and drops those about earlier operations
  /// of its communicator, which can no longer start.
  std::vector<Said> take(OperationId id) {
    std::vector<Said> now;
    std::erase_if(said_, [&](Said& said) {
      if (said.id == id) now.push_back(std::move(said));
      return said.id.communicator == id.communicator && said.id.sequence <= id.sequence;
    });
    return now;
  }
  /// Keeps the messages for which `concerns` is true; returns the others.
  template <class Concerns>
  std::vector<Said> keep(Concerns concerns) {
    std::vector<Said> dropped;
    std::erase_if(said_, [&](Said& said) {
      if (concerns(said.id)) return false;
      dropped.push_back(std::move(said));
      return true;
    });
    return dropped;
  }

 private:
  std::vector<Said> said_;
};

/// The communicators of this rank, and the next operation on each; likewise for the latest
/// kFreedMax communicators that it has freed.
///
/// Threads   one at a time.
class Progress {
 public:
  static constexpr std::size_t kFreedMax = 4096;

  /// `next` is the number of the communicator's next operation, and outlives the entry. `first` as
  /// in Group.
  void add(std::uint32_t communicator, Rank first, const std::atomic<std::uint32_t>& next) {
    current_[communicator] = {first, &next};
  }
  void remove(std::uint32_t communicator);
  bool knows(OperationId id) const { return current_.contains(id.communicator); }
  /// False also for another communicator with the same number.
  bool knows(OperationId id, Rank first) const {
    const auto found = current_.find(id.communicator);
    return found != current_.end() && found->second.first == first;
  }
  /// Whether this rank has not started it yet.
  bool ahead(OperationId id) const {
    const auto found = current_.find(id.communicator);
    return found != current_.end() &&
           id.sequence >= found->second.next->load(std::memory_order_relaxed);
  }
  /// Whether this rank would have started it, had it not freed the communicator.
  bool freed_before(OperationId id, Rank first) const;

 private:
  struct Current {
    Rank first;
    const std::atomic<std::uint32_t>* next = nullptr;
  };
  struct Freed {
    std::uint32_t communicator = 0;
    Rank first;
    std::uint32_t next = 0;  // the first operation that it has not started
  };
  std::map<std::uint32_t, Current> current_;
  std::deque<Freed> freed_;
};

}  // namespace farandole
