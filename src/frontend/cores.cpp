// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "frontend/cores.hpp"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <set>
#include <sstream>

namespace farandole {
namespace {

constexpr int kCoresMax = 1 << 16;  // more than any kernel knows

std::vector<int> affinity() {
  // The kernel refuses a set that is smaller than its own.
  for (int count = CPU_SETSIZE; count <= kCoresMax; count *= 2) {
    std::vector<cpu_set_t> sets(static_cast<std::size_t>(count) / CPU_SETSIZE);
    const std::size_t bytes = sets.size() * sizeof(cpu_set_t);
    if (sched_getaffinity(0, bytes, sets.data()) != 0) {
      if (errno == EINVAL) continue;
      break;
    }
    std::vector<int> cores;
    for (int core = 0; core < count; ++core) {
      if (CPU_ISSET_S(static_cast<std::size_t>(core), bytes, sets.data())) cores.push_back(core);
    }
    return cores;
  }
  return {0};
}

/// "150000 100000" as in cgroup v2's cpu.max, "max" or -1 for no limit.
std::optional<double> quota_in(const std::string& quota, const std::string& period) {
  double of = 0, each = 0;
  const bool numbers = (std::istringstream(quota) >> of) && (std::istringstream(period) >> each);
  if (!numbers || of <= 0 || each <= 0) return std::nullopt;
  return of / each;
}

std::optional<double> quota_of(const std::string& folder) {
  std::string quota, period;
  if (std::ifstream(folder + "/cpu.max") >> quota >> period) return quota_in(quota, period);
  std::ifstream(folder + "/cpu.cfs_quota_us") >> quota;
  std::ifstream(folder + "/cpu.cfs_period_us") >> period;
  return quota_in(quota, period);
}

/// Takes the tightest limit of the control group and its parents. In a container the path may be
/// the host's, of which only the root is visible.
void read_limit(const std::string& mount, std::string path, CoreShare& share) {
  double tightest = 0;
  for (;;) {
    const auto quota = quota_of(mount + path);
    if (quota && (share.limit == 0 || *quota < tightest)) {
      tightest = *quota;
      share.limit = std::clamp(static_cast<int>(tightest), 1, kCoresMax);
      share.group = path.empty() ? "/" : path;
    }
    if (path.empty()) return;
    path.resize(path.rfind('/'));
  }
}

/// Gives each rank a core of its own, moving ranks placed earlier if that makes room [Kuhn 1955].
class Assignment {
 public:
  explicit Assignment(const std::vector<CoreShare>& ranks) : ranks_(ranks) {
    int last = 0;
    for (const CoreShare& rank : ranks) {
      if (!rank.cores.empty()) last = std::max(last, rank.cores.back());
    }
    owner_.assign(static_cast<std::size_t>(last) + 1, kNobody);
  }

  bool place(std::size_t rank) {
    tried_.assign(owner_.size(), false);
    return find_core(rank);
  }

 private:
  static constexpr std::size_t kNobody = ~std::size_t{0};

  bool find_core(std::size_t rank) {
    for (const int core : ranks_[rank].cores) {
      const auto index = static_cast<std::size_t>(core);
      if (owner_[index] != kNobody) continue;
      owner_[index] = rank;
      return true;
    }
    for (const int core : ranks_[rank].cores) {
      const auto index = static_cast<std::size_t>(core);
      if (tried_[index]) continue;
      tried_[index] = true;
      if (!find_core(owner_[index])) continue;
      owner_[index] = rank;
      return true;
    }
    return false;
  }

  const std::vector<CoreShare>& ranks_;
  std::vector<std::size_t> owner_;
  std::vector<bool> tried_;
};

}  // namespace

std::string CoreShare::text() const {
  std::string text;
  for (std::size_t i = 0; i < cores.size(); ++i) {
    const int first = cores[i];
    while (i + 1 < cores.size() && cores[i + 1] == cores[i] + 1) ++i;
    if (!text.empty()) text += ',';
    text += std::to_string(first);
    if (cores[i] != first) text += '-' + std::to_string(cores[i]);
  }
  return limit == 0 ? text : text + ' ' + std::to_string(limit) + ' ' + group;
}

std::optional<CoreShare> CoreShare::parse(std::string_view text) {
  CoreShare share;
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto number = [&](int& value) {
    const auto [rest, failure] = std::from_chars(at, end, value);
    at = rest;
    return failure == std::errc() && value >= 0 && value < kCoresMax;
  };
  for (bool more = true; more;) {
    int first = 0;
    if (!number(first)) return std::nullopt;
    int last = first;
    if (at != end && *at == '-' && (++at, !number(last))) return std::nullopt;
    if (last < first || (!share.cores.empty() && first <= share.cores.back())) return std::nullopt;
    for (int core = first; core <= last; ++core) share.cores.push_back(core);
    more = at != end && *at == ',';
    if (more) ++at;
  }
  if (at == end) return share;
  if (*at++ != ' ' || !number(share.limit) || share.limit == 0) return std::nullopt;
  if (at == end || *at++ != ' ' || at == end) return std::nullopt;
  share.group.assign(at, end);
  return share;
}

CoreShare own_core_share(const std::string& membership, const std::string& groups) {
  CoreShare share;
  share.cores = affinity();
  std::ifstream file(membership);
  for (std::string line; std::getline(file, line);) {  // "number:controllers:/path"
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    std::string path = line.substr(second + 1);
    if (path.empty() || path.front() != '/') continue;
    if (path == "/") path.clear();
    if (controllers == ",,") {
      read_limit(groups, path, share);
    } else if (controllers.find(",cpu,") != std::string::npos) {
      read_limit(groups + "/cpu", path, share);
    }
  }
  return share;
}

int cores_of(const std::vector<CoreShare>& ranks) {
  struct Crowd {
    std::set<int> cores;
    int placed = 0, limit = kCoresMax;
  };
  std::map<std::string_view, Crowd> groups;
  std::set<int> all;
  Assignment assignment(ranks);
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    Crowd& group = groups[ranks[rank].group];
    if (ranks[rank].limit > 0) group.limit = std::min(group.limit, ranks[rank].limit);
    group.cores.insert(ranks[rank].cores.begin(), ranks[rank].cores.end());
    all.insert(ranks[rank].cores.begin(), ranks[rank].cores.end());
    group.placed += assignment.place(rank) ? 1 : 0;
  }
  int placed = 0, usable = 0;
  for (const auto& [name, group] : groups) {
    placed += std::min(group.placed, group.limit);
    usable += std::min(static_cast<int>(group.cores.size()), group.limit);
  }
  const bool each_has_one = placed == static_cast<int>(ranks.size());
  return each_has_one ? std::min(usable, static_cast<int>(all.size())) : std::max(1, placed);
}

std::map<std::string, int> cores_by_host(const Members& members) {
  std::map<std::string, std::vector<CoreShare>> hosts;
  std::set<std::string> unknown;
  for (const Member& member : members) {
    const auto entry = member.record.find(kCoresEntry);
    auto share = entry == member.record.end() ? std::nullopt : CoreShare::parse(entry->second);
    if (share) {
      hosts[member.host_id].push_back(*std::move(share));
    } else {
      unknown.insert(member.host_id);
    }
  }
  std::map<std::string, int> cores;
  for (const auto& [host, ranks] : hosts) {
    if (!unknown.contains(host)) cores[host] = cores_of(ranks);
  }
  return cores;
}

}  // namespace farandole
