// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/copy_policy.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <optional>
#include <utility>

namespace farandole::shm {
namespace {

using Switch = std::pair<std::string_view, bool CopyPaths::*>;
constexpr std::array kSwitches = {
    Switch{"slots", &CopyPaths::slots},
    Switch{"long_slots", &CopyPaths::long_slots},
    Switch{"in_place", &CopyPaths::in_place},
    Switch{"joined_pipes", &CopyPaths::joined_pipes},
    Switch{"long_pipe", &CopyPaths::long_pipe},
    Switch{"puts", &CopyPaths::puts},
    Switch{"shares", &CopyPaths::shares},
    Switch{"kernel", &CopyPaths::kernel},
    Switch{"past_caches", &CopyPaths::past_caches},
    Switch{"asks_ahead", &CopyPaths::asks_ahead},
    Switch{"timed", &CopyPaths::timed},
};

/// Whether a rank that reads one piece of each rank's input still has them in its own cache when it
/// has made their sum. Measured with own caches of 1 MiB: so with two and three ranks, not with
/// four.
constexpr bool are_at_hand(std::size_t ranks, const Caches& caches) {
  return ranks * kPieceBytes <= caches.own_bytes / 16 * 3;
}

/// From this many bytes on both ends move a message if only one rank sends. With several readers
/// the sender has less time for each.
constexpr std::size_t share_bytes_min(std::size_t ranks_on_host) {
  return std::size_t{ranks_on_host <= 2 ? 128U : 512U} << 10;
}

/// Size of the first core's data cache of this level, if the system reports it.
std::optional<std::size_t> cache_bytes(int level) {
  for (int index = 0; index < 8; ++index) {
    const std::string folder =
        "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
    int its_level = 0;
    std::string type, unit;
    std::size_t size = 0;
    std::ifstream(folder + "level") >> its_level;
    std::ifstream(folder + "type") >> type;
    std::ifstream(folder + "size") >> size >> unit;
    if (its_level != level || type == "Instruction" || size == 0) continue;
    return size << (unit == "M" ? 20 : 10);
  }
  return std::nullopt;
}

std::size_t near(std::optional<std::size_t> found, std::size_t usual) {
  return std::clamp(found.value_or(usual), usual / 2, 2 * usual);
}

}  // namespace

const Caches& Caches::of_this_host() {
  static const Caches caches = [] {
    const Caches usual;
    return Caches{near(cache_bytes(2), usual.own_bytes), near(cache_bytes(3), usual.shared_bytes)};
  }();
  return caches;
}

std::string CopyPaths::names() {
  std::string names;
  for (const auto& [name, path] : kSwitches) {
    names += (names.empty() ? "" : ", ") + std::string(name);
  }
  return names;
}

Result<CopyPaths> CopyPaths::all_but(std::string_view without) {
  CopyPaths paths;
  while (!without.empty()) {
    const std::string_view word = without.substr(0, without.find(','));
    without.remove_prefix(std::min(without.size(), word.size() + 1));
    const auto found = std::ranges::find(kSwitches, word, &Switch::first);
    if (found == kSwitches.end()) {
      return Error{ErrorKind::kInvalidArgument,
                   "'" + std::string(word) + "' is no way of messages through shared memory, " +
                       "allowed are " + names() + ", separated by commas."};
    }
    paths.*found->second = false;
  }
  return paths;
}

CopyPolicy CopyPolicy::of(const Caches& caches, std::size_t ranks_on_host, const CopyPaths& paths) {
  CopyPolicy policy;
  policy.paths_ = paths;
  policy.slot_always_max_ = paths.slots ? kInSlot : sizeof(Slot::brief);
  policy.slot_max_ = paths.long_slots ? in_slot_max(ranks_on_host) : kInSlot;
  if (!paths.slots) policy.slot_max_ = policy.slot_always_max_;
  if (paths.shares) policy.share_min_ = share_bytes_min(ranks_on_host);
  // Shorter messages travel in their slot or are staged: the kernel takes 0.6 us and more, however
  // little it copies; and if only one rank sends, a pipe has both ends copy.
  if (paths.kernel) {
    policy.kernel_min_ = kInSlotMax + 1;
    policy.kernel_one_sends_min_ = share_bytes_min(kReachingRanks);
  }
  // Where ranks share cores, all readers must have run before a block of a pipe is used again, so a
  // broadcast gains from a long pipe. In other operations all ranks send at once, and that many
  // long pipes would fill the shared cache; their messages are seldom this long.
  if (paths.long_pipe) {
    policy.long_pipe_min_ = std::size_t{32} << 20;
    policy.long_pipe_one_sends_min_ = std::size_t{8} << 20;
  }
  // Measured with a shared cache of 32 MiB. A target is written as if it were in no cache when the
  // buffers of all ranks together have 16 MiB or more and its owner writes it, or 48 MiB or more
  // and a peer writes it, which has just read it.
  policy.cached_max_ = caches.shared_bytes / 2;
  policy.put_cached_max_ =
      are_at_hand(ranks_on_host, caches) ? kNever : caches.shared_bytes / 2 * 3;
  // Measured with own caches of 1 MiB.
  if (paths.asks_ahead) policy.ask_ahead_min_ = 2 * caches.own_bytes;
  if (paths.past_caches) policy.to_memory_ = &copy_to_memory;
  return policy;
}

}  // namespace farandole::shm
