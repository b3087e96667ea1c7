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

/// What a rank says to all others about an operation of its own that does not move: what it
/// believes the operation to be. Who believes otherwise tells all; who believes the same has
/// nothing to add. docs/design/0014-mismatches.md
struct Claim {
  OperationId id;
  Rank first;  // of the group, see Group::first()
  Rank from;
  Signature signature;
};

std::string encode(std::span<const Claim> claims);
std::optional<std::vector<Claim>> decode_claims(std::string_view message);

/// Two ranks that called one operation unlike things; or, with an excuse, a rank that called the
/// operation and could not start it, for want of another rank if it is `lost`.
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

/// How long an operation of this rank stands still before the rank makes its claim. Ranks wait
/// unequally long, in an order that changes from operation to operation, so that one claim or a few
/// are heard by all others in time to keep silent, whoever it is that is waited for.
std::chrono::nanoseconds claims_after(OperationId id, Rank self, int size,
                                      std::chrono::nanoseconds patience);
/// The patience at first, and at last: each claim of a communicator doubles its patience, since
/// most claims are about a rank that is late and nothing else.
inline constexpr std::chrono::nanoseconds kPatienceMin = std::chrono::milliseconds(50);
inline constexpr std::chrono::nanoseconds kPatienceMax = std::chrono::milliseconds(400);

/// What was said about operations that are not in flight here: the latest kMax.
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
  /// The operation starts: what was said about it counts now, what was said about those before it
  /// on its communicator never will.
  std::vector<Said> take(OperationId id) {
    std::vector<Said> now;
    std::erase_if(said_, [&](Said& said) {
      if (said.id == id) now.push_back(std::move(said));
      return said.id.communicator == id.communicator && said.id.sequence <= id.sequence;
    });
    return now;
  }
  /// Returns what it does not keep.
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

/// The communicators of this rank, and how far it has come on each; likewise of the latest
/// kFreedMax that it has freed.
///
/// Threads   one at a time.
class Progress {
 public:
  static constexpr std::size_t kFreedMax = 4096;

  /// `next` numbers the communicator's operations, and outlives the entry. `first` as in Group.
  void add(std::uint32_t communicator, Rank first, const std::atomic<std::uint32_t>& next) {
    current_[communicator] = {first, &next};
  }
  void remove(std::uint32_t communicator);
  bool knows(OperationId id) const { return current_.contains(id.communicator); }
  /// Not another one with that number.
  bool knows(OperationId id, Rank first) const {
    const auto found = current_.find(id.communicator);
    return found != current_.end() && found->second.first == first;
  }
  /// Whether this rank will start it yet.
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
