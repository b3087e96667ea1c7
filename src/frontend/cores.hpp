// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/member.hpp"

namespace farandole {

/// Where a process may run. Each rank publishes its own, since the mask of one rank says nothing
/// about the others: launchers bind ranks to different cores, and containers allow fewer cores than
/// they show.
struct CoreShare {
  std::vector<int> cores;  // the affinity mask, ascending
  int limit = 0;           // whole cores that its control group may use at a time; 0: no limit
  std::string group;       // that control group, empty without a limit

  /// "0-3,8" or "0-3,8 2 /group".
  std::string text() const;
  static std::optional<CoreShare> parse(std::string_view text);
};

/// The share of the calling thread, which its later children inherit. A limit that cannot be read
/// counts as none.
CoreShare own_core_share(const std::string& membership = "/proc/self/cgroup",
                         const std::string& groups = "/sys/fs/cgroup");

/// How many cores these ranks of one host can keep busy. It is less than the number of ranks
/// exactly if some of them must share a core, because there is no way to give each its own [P.
/// Hall, 1935].
int cores_of(const std::vector<CoreShare>& ranks);

/// cores_of() by host_id; a host is left out if one of its members published no share.
std::map<std::string, int> cores_by_host(const Members& members);

/// Key of the share in a member record.
inline constexpr const char* kCoresEntry = "cores";

}  // namespace farandole
