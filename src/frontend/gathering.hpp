// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.hpp"
#include "bootstrap/member.hpp"
#include "bootstrap/session.hpp"
#include "farandole/result.hpp"

namespace farandole {

/// Communicators of create_group() are numbered from here on, those of split() below.
inline constexpr std::uint32_t kGroupNumbers = std::uint32_t{1} << 30;

/// The number of the communicator that `first` makes after it has made `count` others:
/// kGroupNumbers, the first member's rank, and the count, in 31 bits. None if `count` does not fit.
std::optional<std::uint32_t> group_number(Rank first, std::size_t world_size, std::uint32_t count);

/// Names a communicator that is to be made: its ranks in order, its parent, and the caller's tag,
/// which tells apart two that are made at the same time. Ranks are world ranks.
struct GroupKey {
  std::int32_t tag = 0;
  std::uint32_t parent = 0;
  std::int32_t parent_first = 0;  // with the number it names the parent, see Group::first()
  std::vector<std::int32_t> ranks;
  auto operator<=>(const GroupKey&) const = default;
};

/// Lets the members of a new group find each other, without calls on other ranks, by messages that
/// are flooded over the control plane.
///
///   joins       a member to all: it has called, with the number of its call
///   made        the first member to all, once every member has joined: the calls that this
///               answers, and the communicator's number
///   withdraws   a member to all: that call has ended
///
/// A member may withdraw just when the first member answers. The first member then aborts the
/// communicator that it has made, so that no rank waits in it for a member that does not know of
/// it.
///
/// The first member picks a number that contains its own rank, so that no other first member picks
/// the same one (docs/design/0021-jobs-and-groups.md). Joins are repeated while a member waits,
/// since a control plane that has just lost a rank may lose messages too.
///
/// Threads   any. `flood` is called without a lock.
/// Blocking  gather() until its deadline; nothing else.
class Gathering {
 public:
  using Flood = std::function<void(std::string_view)>;

  /// Waits until every rank of `key`, this one among them, has called it with the same key. Returns
  /// the number of the communicator.
  ///
  /// Errors    kRankFailed naming a member that is gone; kTimedOut naming the members that have not
  ///           come; kInternal when the first member has no number left.
  Result<std::uint32_t> gather(Rank self, const Members& members, const GroupKey& key,
                               Deadline deadline, const Flood& flood);

  /// Takes the message and returns true if it is one of these. Unless `answer` is empty then, the
  /// caller floods it and passes it to this rank's engine.
  bool notice(Rank from, std::string_view message, std::string& answer);
  void departed(const Departure& departure);
  /// Ends all waits, now and later: the library is shut down.
  void close();

 private:
  /// A call of each rank, by the number that the rank gave it.
  using Calls = std::map<std::int32_t, std::uint64_t>;
  struct Made {
    GroupKey key;
    Calls calls;
    std::uint32_t number = 0;
  };
  struct Waiting {
    const GroupKey& key;
    Rank self;
    std::uint64_t call;
    std::optional<std::uint32_t> number = std::nullopt;
    std::set<std::int32_t> gave_up = {};  // members that joined and then withdrew
  };

  static std::string encode(const Made& made);
  std::optional<Error> ended(const Waiting& mine, const Members& members, Deadline deadline,
                             Clock::time_point began);
  bool all_joined(const Waiting& mine) const;
  Result<Made> make(const Waiting& mine, const Members& members);
  bool is_gone(Rank rank) const;
  std::optional<Error> lost(const Members& members, const GroupKey& key) const;
  Error late(const Waiting& mine, const Members& members, Clock::duration waited) const;
  void take_join(Rank from, GroupKey key, std::uint64_t call, std::string& answer);
  void take_made(const Made& made);
  void withdraw(Rank from, const GroupKey& key, std::uint64_t call);
  void give_up(Rank from, const GroupKey& key, std::uint64_t call, std::string& answer);

  std::mutex mutex_;
  std::condition_variable changed_;
  bool closed_ = false;
  std::uint64_t calls_ = 0;           // of this rank
  std::uint32_t numbers_ = 0;         // that this rank has picked
  std::map<GroupKey, Calls> joined_;  // of other ranks, and not answered yet
  std::deque<Made> made_;             // by this rank: the latest, for members that missed them
  std::list<Waiting*> waiting_;       // calls of this rank
  std::vector<Departure> gone_;  // as they were heard of: the culprit comes before who left for it
};

}  // namespace farandole
