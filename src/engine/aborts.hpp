// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "engine/group.hpp"
#include "farandole/types.hpp"

namespace farandole {

/// A member has ended a communicator for all members. The communicator's number and its first rank
/// identify it; no other communicator ever has both.
struct Abort {
  std::uint32_t communicator = 0;
  Rank first;  // of the group, see Group::first()
  Rank by;     // in the world
  std::string reason;
};

std::string encode(const Abort& abort);
std::optional<Abort> decode_abort(std::string_view message);

/// The latest kMax aborts, including those of communicators that this rank is not in or is about to
/// join. If two concern one communicator, the first one received counts.
///
/// Threads   one at a time.
class Aborts {
 public:
  static constexpr std::size_t kMax = 4096;

  /// False if that communicator was aborted before.
  bool add(Abort abort);
  const Abort* find(std::uint32_t communicator, Rank first) const;
  const Abort* find(const Group& group) const { return find(group.communicator, group.first()); }

 private:
  std::deque<Abort> aborts_;
};

}  // namespace farandole
